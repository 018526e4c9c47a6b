import { expect, test } from "vitest";
import { formatClock, formatDistance, formatDuration, parseTime } from "../src/job/times";
import { NOW } from "./making";

test.each([
  [0, "0s"],
  [300, "0s"],
  [12_000, "12s"],
  [120_000, "2m"],
  [185_000, "3m 5s"],
  [7_500_000, "2h 5m"],
  [86_400_000 * 4 + 3_600_000 * 3, "4d 3h"],
  [86_400_000 * 4 + 60_000 * 3, "4d"],
  [-5, "0s"],
])("%d ms is %s", (span, words) => expect(formatDuration(span)).toBe(words));

test("a time of today has no date", () => expect(formatClock(NOW + 10_000, NOW, "UTC")).toBe("14:02:10"));
test("a time of another day has its date", () =>
  expect(formatClock(NOW - 86_400_000, NOW, "UTC")).toBe("24 Nov 14:02:00"));
test("a time of another year has its year", () =>
  expect(formatClock(NOW - 366 * 86_400_000, NOW, "UTC")).toContain("2025"));
test("days are those of the zone", () => expect(formatClock(NOW, NOW, "Asia/Tokyo")).toBe("23:02:00"));
test("distances say which way", () =>
  expect([formatDistance(NOW + 300_000, NOW), formatDistance(NOW - 60_000, NOW)]).toEqual(["in 5m", "1m ago"]));
test("what is no time is null", () =>
  expect([parseTime(""), parseTime("soon"), parseTime(undefined)]).toEqual([null, null, null]));
