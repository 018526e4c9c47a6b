/**
 * Attempts of a Job: its pods as rows of a table, in the shape that records of deleted Jobs have.
 *
 * Called by the Job page, the record page and the words for a Job's state.
 */

import { indexOf } from "./indexes";
import type { Attempt, ContainerStatus, Pod, Terminated } from "./objects";
import { parseTime } from "./times";

const PEAK_MEMORY = "jobplane.dev/peak-memory";

/** Attempts of living pods, newest first. */
export function attemptsOf(pods: Iterable<Pod>): Attempt[] {
  return sortAttempts([...pods].map(attemptOf));
}

/** Living pods and attempts of a record as one list: a pod that lives wins, as it is newer. */
export function mergeAttempts(living: Attempt[], recorded: Attempt[]): Attempt[] {
  const known = new Set(living.map((each) => each.podUID));
  return sortAttempts([...living, ...recorded.filter((each) => !known.has(each.podUID))]);
}

/** The attempt that a pod is. */
export function attemptOf(pod: Pod): Attempt {
  const status = pod.status;
  const ended = decisiveEnd(pod);
  const terminated = ended?.state?.terminated;
  return {
    pod: pod.metadata.name,
    podUID: pod.metadata.uid,
    index: indexOf(pod),
    node: pod.spec.nodeName ?? "",
    createdAt: pod.metadata.creationTimestamp ?? null,
    startedAt: firstStart(pod),
    endedAt: isEnded(pod) ? lastEnd(pod) : null,
    phase: status?.phase ?? "Pending",
    exitCode: terminated?.exitCode ?? null,
    reason: status?.reason ?? terminated?.reason ?? waitingReason(pod),
    message: status?.message ?? terminated?.message ?? "",
    peakMemoryBytes: readPeak(pod.metadata.annotations?.[PEAK_MEMORY]),
    output: parseOutput(terminated),
  };
}

/** Why an attempt ended, in a few words: "exit code 1", "OOMKilled (exit code 137)", "Evicted". Empty if it has not failed. */
export function explainEnd(attempt: Attempt): string {
  const code = attempt.exitCode;
  const told = attempt.reason && attempt.reason !== "Error" && attempt.reason !== "Completed" ? attempt.reason : "";
  if (code !== null && code !== 0) return told ? `${told} (exit code ${code})` : `exit code ${code}`;
  return attempt.phase === "Failed" ? told || "the pod failed" : "";
}

export function isEnded(pod: Pod): boolean {
  return pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
}

function sortAttempts(attempts: Attempt[]): Attempt[] {
  return attempts.sort((a, b) => orderOf(b) - orderOf(a) || (b.pod < a.pod ? -1 : 1));
}

function orderOf(attempt: Attempt): number {
  return parseTime(attempt.createdAt) ?? 0;
}

/** The container whose end decided the pod's: the first that failed, else the first. */
function decisiveEnd(pod: Pod): ContainerStatus | undefined {
  const all = statuses(pod);
  return all.find((each) => (each.state?.terminated?.exitCode ?? 0) !== 0) ?? pod.status?.containerStatuses?.[0];
}

function waitingReason(pod: Pod): string {
  return statuses(pod).find((each) => each.state?.waiting?.reason)?.state?.waiting?.reason ?? "";
}

function statuses(pod: Pod): ContainerStatus[] {
  return [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
}

function firstStart(pod: Pod): string | null {
  const starts = (pod.status?.containerStatuses ?? []).flatMap((each) => [
    each.lastState?.terminated?.startedAt,
    each.state?.running?.startedAt,
    each.state?.terminated?.startedAt,
  ]);
  return pick(starts, (a, b) => a < b);
}

function lastEnd(pod: Pod): string | null {
  return pick(
    statuses(pod).map((each) => each.state?.terminated?.finishedAt),
    (a, b) => a > b,
  );
}

function pick(times: (string | undefined)[], isBetter: (a: number, b: number) => boolean): string | null {
  let best: string | null = null;
  for (const time of times) {
    const at = parseTime(time);
    if (time && at !== null && (best === null || isBetter(at, parseTime(best) as number))) best = time;
  }
  return best;
}

/** The largest peak of the pod's containers, from its annotation; null if there is none. */
function readPeak(text: string | undefined): number | null {
  try {
    const peaks = Object.values(JSON.parse(text ?? "{}") as Record<string, unknown>).filter(
      (each) => typeof each === "number",
    );
    return peaks.length ? Math.max(...(peaks as number[])) : null;
  } catch {
    return null;
  }
}

function parseOutput(terminated: Terminated | undefined): unknown {
  try {
    return terminated?.message ? JSON.parse(terminated.message) : null;
  } catch {
    return null;
  }
}
