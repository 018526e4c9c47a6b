import { expect, test } from "vitest";
import { groupFailures, runBatch } from "../src/actions/batch";

const refusal = (status: number, message: string) => Object.assign(new Error(message), { status });
const row = (name: string) => ({ metadata: { name, uid: name } });
const never = new AbortController().signal;

test("a batch tells how many succeeded, and which failed why", async () => {
  const rows = Array.from({ length: 10 }, (_, number) => number);
  const seen: number[] = [];
  const outcome = await runBatch(
    rows,
    async (number) => {
      if (number % 5 === 3) throw new Error(`no ${number}`);
    },
    never,
    (through) => seen.push(through),
  );
  expect(outcome).toMatchObject({ succeeded: 8, untried: [] });
  expect(outcome.failures).toEqual([
    { row: 3, why: "no 3" },
    { row: 8, why: "no 8" },
  ]);
  expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

test("at most four run at a time, and none after a stop", async () => {
  const stopping = new AbortController();
  let running = 0;
  let most = 0;
  const outcome = await runBatch(
    Array.from({ length: 50 }, (_, number) => number),
    async (number) => {
      most = Math.max(most, (running += 1));
      await Promise.resolve();
      running -= 1;
      if (number === 20) stopping.abort();
    },
    stopping.signal,
  );
  expect(most).toBe(4);
  expect(outcome.succeeded + outcome.untried.length).toBe(50);
  expect(outcome.untried.length).toBeGreaterThanOrEqual(50 - 20 - 4 - 1);
});

test("a busy server is asked again a few times; other refusals are final", async () => {
  const asked: Record<string, number> = {};
  const outcome = await runBatch(
    ["recovers", "stays busy", "forbidden"],
    async (name) => {
      const times = (asked[name] = (asked[name] ?? 0) + 1);
      if (name === "forbidden") throw refusal(403, "you may not");
      if (name === "stays busy" || times < 3) throw refusal(429, "busy");
    },
    never,
    () => {},
    () => Promise.resolve(),
  );
  expect(asked).toEqual({ recovers: 3, "stays busy": 4, forbidden: 1 });
  expect(outcome.succeeded).toBe(1);
  expect(outcome.failures.map((each) => each.why).sort()).toEqual(["busy", "you may not"]);
});

test("failures that differ by the name only are one cause", () => {
  const groups = groupFailures([
    { row: row("a-1"), why: 'jobs "a-1" is forbidden' },
    { row: row("c"), why: "gone" },
    { row: row("b.2"), why: 'jobs "b.2-x7k2p" is forbidden' },
  ]);
  expect(groups.map(({ why, rows }) => [why, rows.length])).toEqual([
    ['jobs "…" is forbidden', 2],
    ["gone", 1],
  ]);
});
