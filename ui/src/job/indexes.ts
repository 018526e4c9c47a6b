/**
 * Indexes of an Indexed Job, and the state of each, from the ranges of the Job's status and its pods.
 *
 * Called by the index grid and the attempts table. One byte an index: a grid of a hundred thousand cells is a small array.
 */

import type { Job, Pod } from "../api/types";

export const INDEX_LABEL = "batch.kubernetes.io/job-completion-index";
export const STATES = ["waiting", "pending", "running", "failed", "succeeded", "retrying"] as const;
export type IndexState = (typeof STATES)[number];
export const MOST_CELLS = 100_000;

const WAITING = 0;
const PENDING = 1;
const RUNNING = 2;
const FAILED = 3;
const SUCCEEDED = 4;
const RETRYING = 5;

/** Parse "0-3,7,9-12" into pairs of first and last index. Text that is no range is left out. */
export function parseRanges(text: string | undefined): [number, number][] {
  const pairs: [number, number][] = [];
  for (const part of (text ?? "").split(",")) {
    const found = /^(\d+)(?:-(\d+))?$/.exec(part.trim());
    if (!found) continue;
    const first = Number(found[1]);
    const last = found[2] === undefined ? first : Number(found[2]);
    if (last >= first) pairs.push([first, last]);
  }
  return pairs;
}

/** How many indexes ranges name. */
export function countIndexes(text: string | undefined): number {
  return parseRanges(text).reduce((sum, [first, last]) => sum + last - first + 1, 0);
}

/** Write indexes as ranges, the way that Kubernetes does. */
export function formatRanges(indexes: Iterable<number>): string {
  const sorted = [...new Set(indexes)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let at = 0; at < sorted.length; at += 1) {
    const first = sorted[at] as number;
    let last = first;
    while (sorted[at + 1] === last + 1) {
      at += 1;
      last += 1;
    }
    parts.push(first === last ? `${first}` : last === first + 1 ? `${first},${last}` : `${first}-${last}`);
  }
  return parts.join(",");
}

export function isIndexed(job: Pick<Job, "spec">): boolean {
  return job.spec.completionMode === "Indexed" && job.spec.completions !== undefined;
}

/** The pod's index, or null. */
export function indexOf(pod: Pick<Pod, "metadata">): number | null {
  const text = pod.metadata.labels?.[INDEX_LABEL] ?? pod.metadata.annotations?.[INDEX_LABEL];
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : null;
}

/** State of each index, as places in `STATES`. The Job's status decides over pods, which may be older. */
export function buildStates(job: Pick<Job, "spec" | "status">, pods: Iterable<Pod>): Uint8Array {
  const states = new Uint8Array(Math.min(job.spec.completions ?? 0, MOST_CELLS));
  const failed = new Uint8Array(states.length);
  for (const pod of pods) {
    const index = indexOf(pod);
    if (index === null || index >= states.length) continue;
    const phase = pod.status?.phase;
    if (phase === "Failed") failed[index] = 1;
    else states[index] = Math.max(states[index] as number, placeOf(phase));
  }
  for (let index = 0; index < states.length; index += 1) {
    if (states[index] === WAITING && failed[index]) states[index] = RETRYING;
  }
  fill(states, job.status?.failedIndexes, FAILED);
  fill(states, job.status?.completedIndexes, SUCCEEDED);
  return states;
}

/** How many indexes are in each state. */
export function countStates(states: Uint8Array): Record<IndexState, number> {
  const counts = new Array<number>(STATES.length).fill(0);
  for (const state of states) counts[state] = (counts[state] as number) + 1;
  return Object.fromEntries(STATES.map((name, place) => [name, counts[place]])) as Record<IndexState, number>;
}

export interface GridShape {
  columns: number;
  rows: number;
  cell: number;
  gap: number;
}

/** Columns and size of cells that show `count` indexes in `width` pixels: larger cells where there are few. */
export function shapeGrid(count: number, width: number): GridShape {
  const [cell, gap] = count <= 60 ? [26, 4] : count <= 600 ? [16, 3] : count <= 20_000 ? [10, 2] : [5, 1];
  const columns = Math.max(1, Math.min(count, Math.floor((width + gap) / (cell + gap))));
  return { columns, rows: Math.ceil(count / columns), cell, gap };
}

/** The index at a point of the grid; null beside all cells. */
export function indexAt(shape: GridShape, count: number, x: number, y: number): number | null {
  const pitch = shape.cell + shape.gap;
  const column = Math.floor(x / pitch);
  const row = Math.floor(y / pitch);
  if (x < 0 || y < 0 || column >= shape.columns || row >= shape.rows) return null;
  const index = row * shape.columns + column;
  return index < count ? index : null;
}

function placeOf(phase: string | undefined): number {
  if (phase === "Running") return RUNNING;
  return phase === "Succeeded" ? SUCCEEDED : PENDING;
}

function fill(states: Uint8Array, ranges: string | undefined, state: number): void {
  for (const [first, last] of parseRanges(ranges)) states.fill(state, first, Math.min(last + 1, states.length));
}
