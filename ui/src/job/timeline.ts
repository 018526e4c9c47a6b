/**
 * Timeline of a pod: how long it was queued, pulled images, started and ran; and its earlier runs, with the back-off between them.
 *
 * Called by the Job, pod and record pages. Times of the API have whole seconds, so a phase may last 0 s; a phase without an end
 * is the one that the pod is in.
 */

import { attemptOf, isEnded } from "./attempts";
import type { Attempt } from "./objects";
import type { KubeEvent, Pod } from "../api/types";
import { parseTime } from "./times";

export type PhaseName = "queued" | "pulling" | "starting" | "running" | "backoff" | "done";

export interface Phase {
  name: PhaseName;
  from: number;
  to: number | null;
  /** Whether a run failed. */
  hasFailed?: boolean;
}

/** Phases of a living pod. Without events of pulls, the time between binding and start is `starting`. */
export function buildTimeline(pod: Pod, events: Iterable<KubeEvent>, runs: Attempt[] = []): Phase[] {
  const attempt = attemptOf(pod);
  const scheduled = pod.status?.conditions?.find((each) => each.type === "PodScheduled" && each.status === "True");
  const bound = scheduled
    ? parseTime(scheduled.lastTransitionTime)
    : pod.spec.nodeName
      ? parseTime(pod.metadata.creationTimestamp)
      : null;
  const own = [...events].filter((each) => each.involvedObject?.uid === pod.metadata.uid);
  const pulls = [timeOf(own, "Pulling", Math.min), timeOf(own, "Pulled", Math.max)] as const;
  return assemble(attempt, bound, ...pulls, runsOf(attempt, runs), isEnded(pod));
}

/** Phases of an attempt in a record, with the events that the record kept. */
export function buildRecordTimeline(attempt: Attempt, events: Iterable<KubeEvent>, runs: Attempt[] = []): Phase[] {
  const own = [...events].filter((each) => each.involvedObject?.uid === attempt.podUID);
  const bound = timeOf(own, "Scheduled", Math.min) ?? parseTime(attempt.startedAt);
  const pulls = [timeOf(own, "Pulling", Math.min), timeOf(own, "Pulled", Math.max)] as const;
  return assemble(attempt, bound, ...pulls, runsOf(attempt, runs), true);
}

/** When an event last happened, in milliseconds. */
export function eventTime(event: KubeEvent): number {
  const text = event.lastTimestamp ?? event.eventTime ?? event.firstTimestamp ?? event.metadata.creationTimestamp;
  return parseTime(text) ?? 0;
}

/** From the first moment to the last, or to `now` while a phase goes on. */
export function spanTimelines(timelines: Phase[][], now: number): [number, number] {
  const phases = timelines.flat();
  const from = Math.min(now, ...phases.map((each) => each.from));
  const to = Math.max(from + 1000, ...phases.map((each) => each.to ?? now));
  return [from, to];
}

/** A pod's runs, oldest first, those that have begun; `runs` are attempts of any pods. */
function runsOf(attempt: Attempt, runs: Attempt[]): Attempt[] {
  const earlier = runs.filter((each) => each.podUID === attempt.podUID && each.container);
  return [...earlier, attempt]
    .filter((each) => parseTime(each.startedAt) !== null)
    .sort((a, b) => (parseTime(a.startedAt) as number) - (parseTime(b.startedAt) as number));
}

type Mark = [name: PhaseName, at: number | null, hasFailed?: boolean];
type Known = [name: PhaseName, at: number, hasFailed: boolean | undefined];

function assemble(
  attempt: Attempt,
  bound: number | null,
  pulling: number | null,
  pulled: number | null,
  runs: Attempt[],
  isOver: boolean,
): Phase[] {
  const created = parseTime(attempt.createdAt);
  if (created === null) return [];
  const marks: Mark[] = [["queued", created]];
  marks.push([pulling === null ? "starting" : "pulling", bound === null ? null : Math.max(bound, created)]);
  if (pulling !== null) marks.push(["starting", pulled]);
  if (runs.length === 0) marks.push(["done", parseTime(attempt.endedAt)]);
  runs.forEach((run, place) => {
    marks.push(["running", parseTime(run.startedAt), run.phase === "Failed"]);
    const isLast = place === runs.length - 1 && isOver;
    // An earlier run whose end is not known is a moment.
    const end = parseTime(run.endedAt) ?? (run.container ? parseTime(run.startedAt) : null);
    marks.push([isLast ? "done" : "backoff", end]);
  });
  return close(marks.flatMap(([name, at, hasFailed]): Known[] => (at === null ? [] : [[name, at, hasFailed]])));
}

/** Each phase ends where the next begins; `done` is a moment. */
function close(marks: Known[]): Phase[] {
  let floor = 0;
  const rising = marks.map(([name, at, hasFailed]): Known => [
    name,
    (floor = Math.max(floor, at)),
    hasFailed,
  ]);
  return rising.map(([name, from, hasFailed], place) => ({
    name,
    from,
    to: name === "done" ? from : (rising[place + 1]?.[1] ?? null),
    ...(hasFailed && { hasFailed }),
  }));
}

function timeOf(events: KubeEvent[], reason: string, choose: (...times: number[]) => number): number | null {
  const times = events.filter((each) => each.reason === reason).map(eventTime);
  return times.length ? choose(...times) : null;
}
