// Reads and follows logs into a buffer. A stream that breaks is resumed at its last line; a log that ended is read once.
import { type Signal, signal } from "@preact/signals";
import { ApiError, send } from "../api/client";
import { LineBuffer } from "./lines";
import { type Source, TAIL_LINES, pathOfLog } from "./sources";

export const MOST_FOLLOWED = 3; // a browser holds six connections to a server, and the page needs its own
const RETRY_MS = 1_500;

export interface Reading {
  readonly buffer: LineBuffer;
  /** Rises with each change of the buffer, at most once a frame. */
  readonly version: Signal<number>;
  /** Whether all that had been written when reading began is there. */
  readonly isComplete: Signal<boolean>;
  readonly problem: Signal<string>;
  stop(): void;
}

/** Read these sources; follow those that may still write, the first few of them at once. */
export function read(namespace: string, sources: Source[], isPrevious: boolean): Reading {
  const stopping = new AbortController();
  const buffer = new LineBuffer();
  const version = signal(0);
  const isComplete = signal(false);
  const problem = signal("");
  const tail = `${Math.max(1_000, Math.floor(TAIL_LINES / Math.max(1, sources.length)))}`;
  const options = { tailLines: tail, ...(isPrevious ? { previous: "true" } : {}) };
  const isMerged = sources.length > 1;
  let frame = 0;

  const changed = (): void => {
    frame ||= window.setTimeout(() => {
      frame = 0;
      if (isMerged) buffer.sort();
      version.value += 1;
    }, 30);
  };

  async function take(source: Source, more: Record<string, string>, skip = ""): Promise<void> {
    const answer = await send(pathOfLog(namespace, source, more), { accept: "*/*", signal: stopping.signal });
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let isNew = !skip; reader;) {
      const { done, value } = await reader.read();
      if (done) break;
      const piece = isNew ? value : dropSeen(value, skip);
      isNew = true;
      buffer.append(source.key, piece);
      changed();
    }
    buffer.finish(source.key);
    changed();
  }

  /** Resumes by the time of the last line until the log has ended. */
  async function followOne(source: Source): Promise<void> {
    let options_: Record<string, string> = { ...options, follow: "true" };
    let last = "";
    while (!stopping.signal.aborted) {
      try {
        await take(source, options_, last);
        return;
      } catch (error) {
        if (stopping.signal.aborted || error instanceof ApiError) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        last = lastTime(buffer, source.key);
        options_ = last ? { follow: "true", sinceTime: last } : options_;
      }
    }
  }

  async function run(): Promise<void> {
    const ended = sources.filter((each) => !each.isLive || isPrevious);
    const live = sources.filter((each) => each.isLive && !isPrevious);
    for (const each of ended) await take(each, options).catch(tell);
    const followed = live.slice(0, MOST_FOLLOWED).map((each) => followOne(each).catch(tell));
    for (const each of live.slice(MOST_FOLLOWED)) await take(each, options).catch(tell);
    isComplete.value = true;
    await Promise.all(followed);
  }

  function tell(error: unknown): void {
    if (!stopping.signal.aborted) problem.value = error instanceof Error ? error.message : String(error);
  }

  void run();
  return { buffer, version, isComplete, problem, stop: () => stopping.abort() };
}

function lastTime(buffer: LineBuffer, source: string): string {
  for (let at = buffer.all.length - 1; at >= 0; at -= 1) {
    const line = buffer.all[at];
    if (line?.source === source && line.time) return line.time;
  }
  return "";
}

/** A resumed log begins with lines that were read before: `sinceTime` counts whole seconds. */
function dropSeen(piece: string, last: string): string {
  const lines = piece.split("\n");
  const first = lines.findIndex((line) => !line || line.slice(0, last.length) > last);
  return first < 0 ? "" : lines.slice(first).join("\n");
}
