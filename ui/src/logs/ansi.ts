/**
 * Lines of logs as spans of text with colours, from the escape sequences of terminals. Everything else of a terminal is dropped.
 *
 * Called for lines that are seen. The outcome is text and class names, never markup: a log cannot inject anything.
 */

export interface Span {
  text: string;
  style: string;
}

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// CSI and OSC sequences, other escapes of two characters, and control characters but tab.
const SEQUENCE =
  /\x1b\[([0-9;:?]*)([ -/]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]/g;

/** Spans of a line, with class names such as "ansi-red ansi-bold". */
export function parseAnsi(line: string): Span[] {
  const text = overwrite(line);
  const spans: Span[] = [];
  const style = { colour: "", bold: false, dim: false };
  let at = 0;
  for (const found of text.matchAll(SEQUENCE)) {
    push(spans, text.slice(at, found.index), style);
    at = found.index + found[0].length;
    if (found[3] === "m" && found[1] !== undefined) applyCodes(found[1], style);
  }
  push(spans, text.slice(at), style);
  return spans;
}

/** The line's text alone. */
export function stripAnsi(line: string): string {
  return overwrite(line).replace(SEQUENCE, "");
}

/** What a terminal shows after carriage returns: the text behind the last one. */
function overwrite(line: string): string {
  const trimmed = line.endsWith("\r") ? line.slice(0, -1) : line;
  return trimmed.slice(trimmed.lastIndexOf("\r") + 1);
}

function applyCodes(codes: string, style: { colour: string; bold: boolean; dim: boolean }): void {
  const numbers = codes.split(/[;:]/).map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at] as number;
    if (code === 38 || code === 48)
      at += numbers[at + 1] === 5 ? 2 : 4; // 256 or 16 million colours: not shown
    else if (code === 0) Object.assign(style, { colour: "", bold: false, dim: false });
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 22) Object.assign(style, { bold: false, dim: false });
    else if (code === 39) style.colour = "";
    else if (code >= 30 && code <= 37) style.colour = COLOURS[code - 30] as string;
    else if (code >= 90 && code <= 97) style.colour = COLOURS[code - 90] as string;
  }
}

function push(spans: Span[], text: string, style: { colour: string; bold: boolean; dim: boolean }): void {
  if (!text) return;
  const names = [style.colour && `ansi-${style.colour}`, style.bold && "ansi-bold", style.dim && "ansi-dim"];
  spans.push({ text, style: names.filter(Boolean).join(" ") });
}
