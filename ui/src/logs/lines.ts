/**
 * A bounded buffer of log lines of one or several sources, and their search.
 *
 * Called by the logs page. Memory is bounded by lines and by characters; the oldest lines go first. Lines have numbers that
 * never change, so that a link to a line and the place of a reader stay right while others are dropped.
 */

import { stripAnsi } from "./ansi";

export const MOST_LINES = 50_000;
export const MOST_CHARACTERS = 20_000_000;
export const LONGEST_LINE = 16_384;

/** `time`: as the API writes it before each line; empty if it wrote none. */
export interface Line {
  number: number;
  source: string;
  time: string;
  text: string;
}

const TIMESTAMP = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) ?/;

export class LineBuffer {
  /** How many lines were dropped at the beginning. */
  dropped = 0;
  private lines: Line[] = [];
  private rests = new Map<string, string>();
  private characters = 0;
  private count = 0;

  constructor(
    private readonly mostLines = MOST_LINES,
    private readonly mostCharacters = MOST_CHARACTERS,
  ) {}

  get all(): readonly Line[] {
    return this.lines;
  }

  /** Add a piece of a source's log, which may end within a line. */
  append(source: string, piece: string): void {
    const parts = ((this.rests.get(source) ?? "") + piece).split("\n");
    const rest = parts.pop() ?? "";
    this.rests.set(source, rest.length > LONGEST_LINE ? "" : rest);
    if (rest.length > LONGEST_LINE) parts.push(rest);
    for (const text of parts) this.push(source, text);
    this.trim();
  }

  /** Add what is left of a source's last line, as it has ended. */
  finish(source: string): void {
    const rest = this.rests.get(source);
    this.rests.delete(source);
    if (rest) this.push(source, rest);
    this.trim();
  }

  /** Put lines of several sources into the order of their times; those without one stay behind the line before them. */
  sort(): void {
    let latest = "";
    const keys = new Map(this.lines.map((line) => [line, (latest = line.time ? padTime(line.time) : latest)]));
    this.lines = [...this.lines].sort((a, b) => compare(keys.get(a), keys.get(b)) || a.number - b.number);
  }

  private push(source: string, text: string): void {
    const time = TIMESTAMP.exec(text);
    const told = time ? text.slice(time[0].length) : text;
    const kept = told.length > LONGEST_LINE ? `${told.slice(0, LONGEST_LINE)} …` : told;
    this.count += 1;
    this.characters += kept.length;
    this.lines.push({ number: this.count, source, time: time?.[1] ?? "", text: kept });
  }

  /** Drop a tenth more than needed, so that not every line moves the array. */
  private trim(): void {
    if (this.lines.length <= this.mostLines && this.characters <= this.mostCharacters) return;
    let drop = Math.max(0, this.lines.length - Math.floor(this.mostLines * 0.9));
    let characters = this.characters;
    for (let at = 0; at < this.lines.length && (at < drop || characters > this.mostCharacters * 0.9); at += 1) {
      characters -= (this.lines[at] as Line).text.length;
      drop = Math.max(drop, at + 1);
    }
    this.lines = this.lines.slice(drop);
    this.dropped += drop;
    this.characters = characters;
  }
}

/** A time with nine digits of a second, so that texts sort as times do. */
function padTime(time: string): string {
  const [seconds = "", fraction = ""] = time.slice(0, -1).split(".");
  return `${seconds}.${fraction.padEnd(9, "0")}`;
}

function compare(a = "", b = ""): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A test for lines: text, or a regular expression between slashes. Null if there is nothing to look for, or no valid one. */
export function parseSearch(text: string): ((line: string) => boolean) | null {
  if (!text) return null;
  const pattern = /^\/(.+)\/(i?)$/.exec(text);
  if (!pattern) {
    const wanted = text.toLowerCase();
    return (line) => stripAnsi(line).toLowerCase().includes(wanted);
  }
  try {
    const expression = new RegExp(pattern[1] as string, pattern[2]);
    return (line) => expression.test(stripAnsi(line));
  } catch {
    return null;
  }
}

const TROUBLE = /\b(error|fatal|panic|exception|traceback|failed)\b/i;

/** Place of the first line that looks like an error; -1 if none does. */
export function findFirstError(lines: readonly Line[]): number {
  return lines.findIndex((each) => TROUBLE.test(stripAnsi(each.text)));
}

/** A name for a line that stays right when the log is read again: its time, and which of the lines of that time it is. */
export function nameLine(lines: readonly Line[], line: Line): string {
  const before = lines.filter(
    (each) => each.time === line.time && each.source === line.source && each.number < line.number,
  );
  return before.length ? `${line.time}~${before.length}` : line.time;
}

/** Place of the line with a name; of the first later one, if all lines are there and it is not; else -1. */
export function findNamed(lines: readonly Line[], name: string, isComplete: boolean): number {
  const [time = "", count = "0"] = name.split("~");
  let seen = 0;
  const exact = lines.findIndex((each) => each.time === time && seen++ === Number(count));
  return exact >= 0 || !isComplete ? exact : lines.findIndex((each) => each.time >= time);
}
