import { expect, test } from "vitest";
import { formatAmount, formatBytes, formatCpu, formatQuantity, parseQuantity } from "../src/job/quantities";

test.each([
  ["1", 1],
  ["1500m", 1.5],
  ["264212084Ki", 264212084 * 1024],
  ["1e3", 1000],
  ["1E", 1e18],
  ["0.5Gi", 2 ** 29],
  ["-2k", -2000],
])("parses %s", (text, value) => expect(parseQuantity(text)).toBeCloseTo(value as number, 9));

test.each(["", "abc", "1 Gi", "Ki", undefined])("takes %s for no quantity", (text) =>
  expect(parseQuantity(text)).toBeNaN(),
);

test.each([
  ["memory", "264212084Ki", "252 GiB"],
  ["memory", "512Mi", "512 MiB"],
  ["memory", "1536Mi", "1.5 GiB"],
  ["memory", "0", "0 B"],
  ["ephemeral-storage", "10G", "9.31 GiB"],
  ["cpu", "1500m", "1.5"],
  ["cpu", "96", "96"],
  ["cpu", "4m", "4m"],
  ["nvidia.com/gpu", "8", "8"],
  ["memory", "nonsense", "nonsense"],
])("writes %s %s as %s", (resource, text, words) => expect(formatQuantity(resource, text)).toBe(words));

test("a value just below a unit is written in the next", () => expect(formatBytes(1023.9 * 2 ** 20)).toBe("1 GiB"));
test("an unknown amount is a dash", () => expect([formatCpu(NaN), formatAmount("memory", NaN)]).toEqual(["–", "–"]));
