// Which rows of a list are selected: by UID, so that a row stays selected wherever it moves. Lists draw checkboxes from it.
import { type Signal, signal } from "@preact/signals";

interface Row {
  metadata: { uid: string };
}

export class Selection {
  readonly uids: Signal<ReadonlySet<string>> = signal(new Set());
  /** Where a range begins: the row that was selected or deselected last. */
  private anchor = "";

  /** Select a row, or deselect it. */
  toggle(uid: string): void {
    this.anchor = uid;
    this.put([uid], !this.uids.value.has(uid));
  }

  /** Do with all rows between the last one and this one as was done with the last one. */
  extend(uid: string, rows: readonly Row[]): void {
    const from = rows.findIndex((row) => row.metadata.uid === this.anchor);
    const to = rows.findIndex((row) => row.metadata.uid === uid);
    if (from < 0 || to < 0) return this.toggle(uid);
    const between = rows.slice(Math.min(from, to), Math.max(from, to) + 1).map((row) => row.metadata.uid);
    this.put(between, this.uids.value.has(this.anchor));
    this.anchor = uid;
  }

  /** Select these and nothing else. */
  replace(uids: Iterable<string>): void {
    this.uids.value = new Set(uids);
  }

  clear(): void {
    this.anchor = "";
    if (this.uids.value.size > 0) this.uids.value = new Set();
  }

  /** The rows that are selected, of those that the list shows: nothing is done to what cannot be seen. */
  of<T extends Row>(rows: readonly T[]): T[] {
    const uids = this.uids.value;
    return uids.size === 0 ? [] : rows.filter((row) => uids.has(row.metadata.uid));
  }

  private put(uids: readonly string[], isSelected: boolean): void {
    const next = new Set(this.uids.value);
    for (const uid of uids) {
      if (isSelected) next.add(uid);
      else next.delete(uid);
    }
    this.uids.value = next;
  }
}
