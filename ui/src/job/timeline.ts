/**
 * Timeline of a pod: how long it was queued, pulled images, started and ran.
 *
 * Called by the Job, pod and record pages. Times of the API have whole seconds, so a phase may last 0 s; a phase without an end
 * is the one that the pod is in.
 */

import { attemptOf } from "./attempts";
import type { Attempt, KubeEvent, Pod } from "./objects";
import { parseTime } from "./times";

export type PhaseName = "queued" | "pulling" | "starting" | "running" | "done";

export interface Phase {
  name: PhaseName;
  from: number;
  to: number | null;
}

/** Phases of a living pod. Without events of pulls, the time between binding and start is `starting`. */
export function buildTimeline(pod: Pod, events: Iterable<KubeEvent>): Phase[] {
  const attempt = attemptOf(pod);
  const scheduled = pod.status?.conditions?.find((each) => each.type === "PodScheduled" && each.status === "True");
  const bound = scheduled
    ? parseTime(scheduled.lastTransitionTime)
    : pod.spec.nodeName
      ? parseTime(pod.metadata.creationTimestamp)
      : null;
  const own = [...events].filter((each) => each.involvedObject?.uid === pod.metadata.uid);
  return assemble(attempt, bound, timeOf(own, "Pulling", Math.min), timeOf(own, "Pulled", Math.max));
}

/** Phases of an attempt in a record, with the events that the record kept. */
export function buildRecordTimeline(attempt: Attempt, events: Iterable<KubeEvent>): Phase[] {
  const own = [...events].filter((each) => each.involvedObject?.uid === attempt.podUID);
  const bound = timeOf(own, "Scheduled", Math.min) ?? parseTime(attempt.startedAt);
  return assemble(attempt, bound, timeOf(own, "Pulling", Math.min), timeOf(own, "Pulled", Math.max));
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

function assemble(attempt: Attempt, bound: number | null, pulling: number | null, pulled: number | null): Phase[] {
  const created = parseTime(attempt.createdAt);
  if (created === null) return [];
  const started = parseTime(attempt.startedAt);
  const ended = parseTime(attempt.endedAt);
  const marks: [PhaseName, number | null][] = [["queued", created]];
  marks.push([pulling === null ? "starting" : "pulling", bound === null ? null : Math.max(bound, created)]);
  if (pulling !== null) marks.push(["starting", pulled]);
  marks.push(["running", started], ["done", ended]);
  return close(marks.filter((mark): mark is [PhaseName, number] => mark[1] !== null));
}

/** Each phase ends where the next begins; `done` is a moment. */
function close(marks: [PhaseName, number][]): Phase[] {
  let floor = 0;
  const rising = marks.map(([name, at]): [PhaseName, number] => [name, (floor = Math.max(floor, at))]);
  return rising.map(([name, from], place) => ({
    name,
    from,
    to: name === "done" ? from : (rising[place + 1]?.[1] ?? null),
  }));
}

function timeOf(events: KubeEvent[], reason: string, choose: (...times: number[]) => number): number | null {
  const times = events.filter((each) => each.reason === reason).map(eventTime);
  return times.length ? choose(...times) : null;
}
