import { expect, test } from "vitest";
import { listNext, parseSchedule, resolveHashes } from "../src/job/cron";

const FROM = Date.parse("2026-11-25T14:02:30Z");

function next(text: string, zone = "UTC", count = 1): string[] {
  const schedule = parseSchedule(text, zone);
  return schedule ? listNext(schedule, FROM, count).map((each) => new Date(each).toISOString().slice(0, 16)) : ["none"];
}

test.each([
  ["* * * * *", "2026-11-25T14:03"],
  ["*/15 * * * *", "2026-11-25T14:15"],
  ["0 3 * * *", "2026-11-26T03:00"],
  ["30 4 * * mon-fri", "2026-11-26T04:30"],
  ["0 0 1 jan *", "2027-01-01T00:00"],
  ["0 0 29 2 *", "2028-02-29T00:00"],
  ["0 0 13 * fri", "2026-11-27T00:00"],
  ["@daily", "2026-11-26T00:00"],
  ["@every 90m", "2026-11-25T15:32"],
  ["TZ=Europe/Berlin 0 4 * * *", "2026-11-26T03:00"],
  ["5/20 * * * *", "2026-11-25T14:05"],
])("%s runs next at %s", (text, moment) => expect(next(text)).toEqual([moment]));

test("the clock of the zone counts", () => expect(next("0 4 * * *", "Asia/Kolkata")).toEqual(["2026-11-25T22:30"]));
test("several next runs follow each other", () =>
  expect(next("0 */6 * * *", "UTC", 3)).toEqual(["2026-11-25T18:00", "2026-11-26T00:00", "2026-11-26T06:00"]));
test.each(["", "a b c d e", "* * * *", "61 * * * *", "TZ=Nowhere/City * * * * *"])("'%s' is no schedule", (text) =>
  expect(next(text)).toEqual(["none"]),
);
test("a day that never comes has no next run", () => expect(next("0 0 31 2 *")).toEqual([]));

// The figures are those of app.kinds.batch.cron_hash.resolve.
test.each([
  ["H H * * *", "33 10 * * *"],
  ["H/15 H(0-7) H * *", "3-59/15 2 28 * *"],
  ["TZ=Europe/Berlin H 3 * * H", "TZ=Europe/Berlin 33 3 * * 4"],
  ["@daily", "@daily"],
  ["0 3 * * *", "0 3 * * *"],
])("%s is %s for the controllers, too", async (text, resolved) =>
  expect(await resolveHashes(text, "default/nightly")).toBe(resolved),
);
