import { expect, test } from "vitest";
import { formatAge, formatClock, formatDistance, formatDuration, parseTime } from "../src/job/times";
import { NOW } from "./making";

test.each([
  [0, "0 s"],
  [300, "< 1 s"],
  [12_000, "12 s"],
  [185_000, "3 min 5 s"],
  [7_500_000, "2 h 5 min"],
  [86_400_000 * 4 + 3_600_000 * 3, "4 d 3 h"],
  [-5, "0 s"],
])("%d ms is %s", (span, words) => expect(formatDuration(span)).toBe(words));

test.each([
  [5_000, "5s"],
  [180_000, "3m"],
  [7_200_000, "2h"],
  [86_400_000 * 4, "4d"],
])("an age of %d ms is %s", (span, words) => expect(formatAge(span)).toBe(words));

test("a time of today has no date", () => expect(formatClock(NOW + 10_000, NOW, "UTC")).toBe("14:02:10"));
test("a time of another day has its date", () =>
  expect(formatClock(NOW - 86_400_000, NOW, "UTC")).toBe("24 Nov 14:02:00"));
test("a time of another year has its year", () =>
  expect(formatClock(NOW - 366 * 86_400_000, NOW, "UTC")).toContain("2025"));
test("days are those of the zone", () => expect(formatClock(NOW, NOW, "Asia/Tokyo")).toBe("23:02:00"));
test("distances say which way", () =>
  expect([formatDistance(NOW + 300_000, NOW), formatDistance(NOW - 60_000, NOW)]).toEqual(["in 5 min", "1 min ago"]));
test("what is no time is null", () =>
  expect([parseTime(""), parseTime("soon"), parseTime(undefined)]).toEqual([null, null, null]));
