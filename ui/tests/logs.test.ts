import { expect, test } from "vitest";
import { parseAnsi, stripAnsi } from "../src/logs/ansi";
import { findFirstError, findNamed, LineBuffer, nameLine, parseSearch } from "../src/logs/lines";

test("colours become class names, and other escapes vanish", () => {
  expect(parseAnsi("\x1b[1;31mbad\x1b[0m ok\x1b[2K\x1b]0;title\x07 \x1b[38;5;9mx\x1b[32mgreen")).toEqual([
    { text: "bad", style: "ansi-red ansi-bold" },
    { text: " ok", style: "" },
    { text: " ", style: "" },
    { text: "x", style: "" },
    { text: "green", style: "ansi-green" },
  ]);
});

test("a line shows what a terminal would after carriage returns", () =>
  expect([stripAnsi("10%\r50%\r100%"), stripAnsi("end\r")]).toEqual(["100%", "end"]));

test("pieces of several sources become whole lines", () => {
  const buffer = new LineBuffer();
  buffer.append("a", "one\ntw");
  buffer.append("b", "other\n");
  buffer.append("a", "o\nrest");
  buffer.finish("a");
  expect(buffer.all.map((each) => `${each.number} ${each.source} ${each.text}`)).toEqual([
    "1 a one",
    "2 b other",
    "3 a two",
    "4 a rest",
  ]);
});

test("lines have their times, and several sources can be put in order", () => {
  const buffer = new LineBuffer();
  buffer.append("a", "2026-11-25T14:00:00.5Z one\n2026-11-25T14:00:02Z three\nwithout a time\n");
  buffer.append("b", "2026-11-25T14:00:00.51Z two\n");
  buffer.sort();
  expect(buffer.all.map((each) => each.text)).toEqual(["one", "two", "three", "without a time"]);
  expect(buffer.all[1]).toMatchObject({ time: "2026-11-25T14:00:00.51Z", source: "b" });
});

test("memory is bounded by lines, and numbers stay", () => {
  const buffer = new LineBuffer(100);
  for (let number = 1; number <= 1000; number += 1) buffer.append("a", `line ${number}\n`);
  expect(buffer.all.length).toBeLessThanOrEqual(100);
  expect(buffer.all.length + buffer.dropped).toBe(1000);
  expect(buffer.all.at(-1)).toMatchObject({ number: 1000, text: "line 1000" });
});

test("memory is bounded by characters, also without any end of line", () => {
  const buffer = new LineBuffer(1000, 100_000);
  for (let piece = 0; piece < 100; piece += 1) buffer.append("a", "x".repeat(10_000));
  expect(buffer.all.reduce((sum, each) => sum + each.text.length, 0)).toBeLessThanOrEqual(100_000);
});

test("search takes text or a regular expression", () => {
  expect(parseSearch("WARN")?.("a \x1b[33mwarn\x1b[0ming")).toBe(true);
  expect(parseSearch("/^a.c$/")?.("abc")).toBe(true);
  expect(parseSearch("/^A.c$/")?.("abc")).toBe(false);
  expect(parseSearch("/[/")).toBeNull();
});

test("the first error is found", () => {
  const buffer = new LineBuffer();
  buffer.append("a", "fine\nterrors\nValueError: no\nFATAL: yes\nan error\n");
  expect(findFirstError(buffer.all)).toBe(3);
});

test("a line is found again by its name, also among lines of the same time", () => {
  const buffer = new LineBuffer();
  buffer.append("a", "2026-11-25T14:00:00Z one\n2026-11-25T14:00:00Z two\n2026-11-25T14:00:02Z three\n");
  for (const line of buffer.all)
    expect(buffer.all[findNamed(buffer.all, nameLine(buffer.all, line), false)]).toBe(line);
  expect(findNamed(buffer.all, "2026-11-25T14:00:01Z", false)).toBe(-1);
  expect(findNamed(buffer.all, "2026-11-25T14:00:01Z", true)).toBe(2);
});
