import { expect, test } from "vitest";
import { Slots } from "../src/components/slots";

const NOTHING = -1;

/** The numbers from one to before another. */
function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, place) => from + place);
}

const rows = (from: number, to: number): string[] => range(from, to).map((each) => `row ${each}`);

test("rows that stay keep their slot, wherever they are now", () => {
  const slots = new Slots();
  expect(slots.assign(["a", "b", "c"], NOTHING)).toEqual([0, 1, 2]);
  expect(slots.assign(["b", "c", "d"], NOTHING)).toEqual([1, 2, 3]);
  expect(slots.assign(["new", "b", "c"], NOTHING)).toEqual([4, 1, 2]);
});

test("a flick uses the same slots in the same order, so that no element is made or moved", () => {
  const slots = new Slots();
  slots.assign(rows(0, 20), NOTHING);
  expect(slots.assign(rows(10, 30), NOTHING)).toEqual(range(0, 20));
  expect(slots.assign(rows(100, 121), NOTHING)).toEqual(range(0, 21));
});

test("the slot with the focus shows no other row", () => {
  const slots = new Slots();
  slots.assign(rows(0, 10), NOTHING);
  expect(slots.assign(rows(50, 60), 1)).toEqual([0, ...range(2, 10), 10]);
});

test("a row that has the focus and stays in a flick keeps its slot", () => {
  const slots = new Slots();
  slots.assign(rows(0, 20), NOTHING);
  expect(slots.assign(rows(15, 35), 17)).toEqual([...range(15, 20), ...range(20, 35)]);
});
