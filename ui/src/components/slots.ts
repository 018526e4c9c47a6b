// Slots of a table: which row element shows which row, by what is cheapest for the browser.
/** Rows for which elements are made at once. To make one takes a browser about as long as to write four anew. */
const MOST_MADE = 8;

/**
 * A row that stays in view keeps its element, and with it the focus. A row that comes has an element made for it, unless many
 * come at once, as in a flick: then all elements stay where they are, and show other rows.
 */
export class Slots {
  private held = new Map<string, number>();
  private next = 0;

  /**
   * The slot of each row in view, in the order of `keys`. The slot `focused` is never given to another row: a key that is
   * pressed there would act on a row that the viewer did not choose.
   */
  assign(keys: readonly string[], focused: number): number[] {
    const come = keys.filter((key) => !this.held.has(key)).length;
    const kept = [...this.held.values()].filter((slot) => slot !== focused);
    const isFlick = come > MOST_MADE && !keys.some((key) => this.held.get(key) === focused);
    const slots = isFlick
      ? keys.map((_, place) => kept[place] ?? this.next++)
      : keys.map((key) => this.held.get(key) ?? this.next++);
    this.held = new Map(keys.map((key, place) => [key, slots[place] as number]));
    return slots;
  }
}
