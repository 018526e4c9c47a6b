// Rows in order, kept as objects change: a change costs one pass over the rows, not a new sort, and so does another filter.
// Pure; lists are drawn from it.
export interface Order<T> {
  readonly matches: (row: T) => boolean;
  readonly by: (row: T) => string | number;
  /** Decides between rows that are equal by `by`. */
  readonly nameOf: (row: T) => string;
  readonly isDescending: boolean;
}

interface Entry<T> {
  readonly uid: string;
  readonly key: string | number;
  readonly name: string;
  readonly row: T;
  isShown: boolean;
}

export class OrderedRows<T> {
  /** All objects in order, also those that do not match. */
  private entries: Entry<T>[] = [];
  private matches: (row: T) => boolean;

  constructor(private readonly order: Order<T>) {
    this.matches = order.matches;
  }

  get rows(): T[] {
    const rows: T[] = [];
    for (const entry of this.entries) if (entry.isShown) rows.push(entry.row);
    return rows;
  }

  /** Show the rows that match this instead. */
  filter(matches: (row: T) => boolean): void {
    if (matches === this.matches) return;
    this.matches = matches;
    for (const entry of this.entries) entry.isShown = matches(entry.row);
  }

  /** Put all objects in order. */
  reset(items: ReadonlyMap<string, T>): void {
    this.entries = this.select(items.keys(), items);
  }

  /** Put those objects in order that have changed; those that are gone are left out. */
  update(changed: ReadonlySet<string>, items: ReadonlyMap<string, T>): void {
    const kept = this.entries.filter((entry) => !changed.has(entry.uid));
    this.entries = this.merge(kept, this.select(changed, items));
  }

  private select(uids: Iterable<string>, items: ReadonlyMap<string, T>): Entry<T>[] {
    const { by, nameOf } = this.order;
    const found: Entry<T>[] = [];
    for (const uid of uids) {
      const row = items.get(uid);
      if (row !== undefined) found.push({ uid, key: by(row), name: nameOf(row), row, isShown: this.matches(row) });
    }
    return found.sort((a, b) => this.compare(a, b));
  }

  private merge(left: Entry<T>[], right: Entry<T>[]): Entry<T>[] {
    const merged: Entry<T>[] = [];
    let next = 0;
    for (const entry of right) {
      for (let other = left[next]; other && this.compare(other, entry) <= 0; other = left[next]) {
        merged.push(other);
        next += 1;
      }
      merged.push(entry);
    }
    for (; next < left.length; next += 1) merged.push(left[next] as Entry<T>);
    return merged;
  }

  private compare(a: Entry<T>, b: Entry<T>): number {
    const sign = this.order.isDescending ? -1 : 1;
    if (a.key !== b.key) return a.key < b.key ? -sign : sign;
    return a.name < b.name ? -1 : a.name > b.name ? 1 : a.uid < b.uid ? -1 : 1;
  }
}
