import { expect, test } from "vitest";
import {
  buildStates,
  countIndexes,
  countStates,
  formatRanges,
  indexAt,
  parseRanges,
  shapeGrid,
  STATES,
} from "../src/job/indexes";
import { makeJob, makePod } from "./making";

test("ranges are parsed, and what is no range is left out", () =>
  expect(parseRanges("0-3,7, 9-12,x,5-2")).toEqual([
    [0, 3],
    [7, 7],
    [9, 12],
  ]));
test("indexes are counted and written as ranges", () =>
  expect([countIndexes("0-3,7"), formatRanges([9, 0, 1, 2, 3, 7, 8])]).toEqual([5, "0-3,7-9"]));

test("five thousand indexes have the state of the Job's status and of their pods", () => {
  const job = makeJob(
    { completions: 5000, completionMode: "Indexed" },
    { completedIndexes: "0-2999,4000", failedIndexes: "3000,3002-3003" },
  );
  const pods = [
    makePod("a", { phase: "Running" }, {}, 3001),
    makePod("b", { phase: "Pending" }, {}, 3500),
    makePod("c", { phase: "Failed" }, {}, 3600),
    makePod("d", { phase: "Failed" }, {}, 3700),
    makePod("e", { phase: "Running" }, {}, 3700),
    makePod("f", { phase: "Running" }, {}, 10),
  ];
  const states = buildStates(job, pods);
  expect(countStates(states)).toEqual({
    waiting: 1992,
    pending: 1,
    running: 2,
    failed: 3,
    succeeded: 3001,
    retrying: 1,
  });
  expect(STATES[states[10] as number]).toBe("succeeded");
  expect(STATES[states[3700] as number]).toBe("running");
});

test("ranges beyond the completions are ignored", () =>
  expect(
    countStates(buildStates(makeJob({ completions: 3, completionMode: "Indexed" }, { completedIndexes: "0-99" }), []))
      .succeeded,
  ).toBe(3));

test("each cell of a grid is found at its own point, and none beside", () => {
  const shape = shapeGrid(5000, 900);
  expect(shape.columns * (shape.cell + shape.gap)).toBeLessThanOrEqual(900 + shape.gap);
  const pitch = shape.cell + shape.gap;
  for (const index of [0, 1, shape.columns, 4999]) {
    const [x, y] = [(index % shape.columns) * pitch + 1, Math.floor(index / shape.columns) * pitch + 1];
    expect(indexAt(shape, 5000, x, y)).toBe(index);
  }
  expect(indexAt(shape, 5000, -1, 5)).toBeNull();
  expect(indexAt(shape, 5000, shape.columns * pitch + 1, 5)).toBeNull();
  expect(indexAt(shape, 5000, 5, shape.rows * pitch + 1)).toBeNull();
});
