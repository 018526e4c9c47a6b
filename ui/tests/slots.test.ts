import { expect, test } from "vitest";
import { Slots } from "../src/components/slots";

const NOTHING = -1;

test("rows that stay keep their slot, wherever they are now", () => {
  const slots = new Slots();
  expect(slots.assign(["a", "b", "c"], NOTHING)).toEqual([0, 1, 2]);
  expect(slots.assign(["b", "c", "d"], NOTHING)).toEqual([1, 2, 3]);
  expect(slots.assign(["new", "b", "c"], NOTHING)).toEqual([4, 1, 2]);
});

test("a flick uses the same slots in the same order, so that no element is made or moved", () => {
  const slots = new Slots();
  slots.assign(["a", "b", "c"], NOTHING);
  expect(slots.assign(["c", "x", "y"], NOTHING)).toEqual([0, 1, 2]);
  expect(slots.assign(["p", "q", "r", "s"], NOTHING)).toEqual([0, 1, 2, 3]);
});

test("the slot with the focus shows no other row", () => {
  const slots = new Slots();
  slots.assign(["a", "b", "c"], NOTHING);
  expect(slots.assign(["x", "y", "z"], 1)).toEqual([0, 2, 3]);
});

test("a row that has the focus and stays in a flick keeps its slot", () => {
  const slots = new Slots();
  slots.assign(["a", "b", "c"], NOTHING);
  expect(slots.assign(["c", "x", "y"], 2)).toEqual([2, 3, 4]);
});
