// Doing one thing to many objects: a few requests at a time, what failed and why, and a way to stop. No page is known here.
export interface Named {
  metadata: { name: string; namespace?: string; uid: string };
}

export interface Failure<T> {
  readonly row: T;
  readonly why: string;
}

export interface Outcome<T> {
  readonly succeeded: number;
  readonly failures: readonly Failure<T>[];
  /** Those that were not tried, because the viewer stopped it. */
  readonly untried: readonly T[];
  /** What the last one that succeeded has told. */
  readonly told: string;
}

// A browser opens six connections to a server, and the page's watches need two of them.
const AT_ONCE = 4;
const TRIES = 4;
const BUSY = new Set([429, 503]);

/** Call `run` for each row. `onProgress` gets how many are through; `stop` keeps further ones from being tried. */
export async function runBatch<T>(
  rows: readonly T[],
  run: (row: T) => Promise<string | void>,
  stop: AbortSignal,
  onProgress: (through: number) => void = () => {},
  pause: (tries: number) => Promise<void> = rest,
): Promise<Outcome<T>> {
  const failures: Failure<T>[] = [];
  let next = 0;
  let succeeded = 0;
  let told = "";
  const work = async (): Promise<void> => {
    while (next < rows.length && !stop.aborted) {
      const row = rows[next++] as T;
      try {
        told = (await tryBusy(() => run(row), pause)) ?? "";
        succeeded += 1;
      } catch (error) {
        failures.push({ row, why: describe(error) });
      }
      onProgress(succeeded + failures.length);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return { succeeded, failures, untried: rows.slice(next), told };
}

/** Try again a few times if the server says that it is busy. */
async function tryBusy<R>(act: () => Promise<R>, pause: (tries: number) => Promise<void>): Promise<R> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await act();
    } catch (error) {
      if (tries === TRIES || !BUSY.has((error as { status?: number }).status ?? 0)) throw error;
      await pause(tries);
    }
  }
}

const rest = (tries: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, 500 * 2 ** tries));

function describe(error: unknown): string {
  if (error instanceof TypeError) return "The server does not answer";
  return error instanceof Error ? error.message : String(error);
}

/** Failures by their cause, the most frequent first. Messages that differ only by the object's name, or one made from it, are one cause. */
export function groupFailures<T extends Named>(failures: readonly Failure<T>[]): { why: string; rows: T[] }[] {
  const groups = new Map<string, { why: string; rows: T[] }>();
  for (const { row, why } of failures) {
    const cause = why.replace(new RegExp(`"${row.metadata.name.replaceAll(".", "\\.")}[^"]*"`, "g"), '"…"');
    const group = groups.get(cause) ?? { why, rows: [] };
    group.rows.push(row);
    if (group.rows.length === 2) group.why = cause;
    groups.set(cause, group);
  }
  return [...groups.values()].sort((a, b) => b.rows.length - a.rows.length);
}
