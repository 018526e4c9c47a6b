/**
 * Attempts of a Job: its pods as rows of a table, in the shape that records of deleted Jobs have. A container that is restarted
 * in its pod has a row for each run that is known: the pod's status has the last two, the Job's record has the newest 20 of each
 * container, and kept logs have the start of all others.
 *
 * Called by the Job page, the record page and the words for a Job's state.
 */

import { indexOf } from "./indexes";
import type { Attempt, RecordedAttempt } from "./objects";
import type { ContainerStatus, Pod, Terminated } from "../api/types";
import { parseTime } from "./times";

const PEAK_MEMORY = "jobplane.dev/peak-memory";

/** Attempts of living pods, newest first. */
export function attemptsOf(pods: Iterable<Pod>): Attempt[] {
  return sortAttempts([...pods].flatMap((pod) => [attemptOf(pod), ...earlierRuns(pod)]));
}

/** A run of a container whose log is kept. When it ended is not known: a log is closed later. */
export interface KeptRun {
  podUID: string;
  container: string;
  run: number;
  startedAt: string;
}

/** The attempts, and the earlier runs in their pods of which only the log is known. They have failed, or there were no later ones. */
export function addKeptRuns(attempts: Attempt[], kept: KeptRun[]): Attempt[] {
  const newest = new Map<string, number>();
  for (const each of kept) newest.set(keyOf(each), Math.max(newest.get(keyOf(each)) ?? 0, each.run));
  const pods = new Map(attempts.filter((each) => !each.container).map((each) => [each.podUID, each]));
  const known = new Set(attempts.map((each) => `${each.podUID}/${each.container}/${each.run}`));
  const added = kept.flatMap((each): Attempt[] => {
    const pod = pods.get(each.podUID);
    const last = pod?.restarts?.[each.container] ?? newest.get(keyOf(each)) ?? 0;
    if (!pod || each.run >= last || known.has(`${keyOf(each)}/${each.run}`)) return [];
    return [asRun(pod, each.container, each.run, { ...each, reason: "exit code not kept", exitCode: null })];
  });
  return added.length ? sortAttempts([...attempts, ...added]) : attempts;
}

const keyOf = (run: KeptRun): string => `${run.podUID}/${run.container}`;

/** Attempts of living pods and those of a record, with their restarts, as one list: a pod that lives wins, as it is newer. */
export function mergeAttempts(living: Attempt[], recorded: RecordedAttempt[]): Attempt[] {
  const pods = new Map(living.filter((each) => !each.container).map((each) => [each.podUID, each]));
  const known = new Set(living.map((each) => `${each.podUID}/${each.container}/${each.run}`));
  const added = recorded.flatMap(({ restarts, ...attempt }) => {
    const pod = pods.get(attempt.podUID);
    const earlier = (restarts ?? [])
      .filter((each) => !known.has(`${attempt.podUID}/${each.container}/${each.run}`))
      .map((each) => asRun(pod ?? attempt, each.container, each.run, { ...each, finishedAt: each.endedAt }));
    return pod ? earlier : [attempt, ...earlier];
  });
  return sortAttempts([...living, ...added]);
}

/** Restarts of all containers of all pods. */
export function countRestarts(attempts: Attempt[]): number {
  return attempts.flatMap((each) => Object.values(each.restarts ?? {})).reduce((sum, count) => sum + count, 0);
}

/** Whether containers were restarted more often than the statuses of their pods tell. */
export function hasMoreRuns(attempts: Attempt[]): boolean {
  return attempts.some((each) => Object.values(each.restarts ?? {}).some((count) => count > 1));
}

/** The attempt that a pod is. */
export function attemptOf(pod: Pod): Attempt {
  const status = pod.status;
  const restarts = restartsOf(pod);
  const waiting = findRestart(pod);
  if (waiting) return { ...base(pod), ...waiting, restarts };
  const ended = decisiveEnd(pod);
  const terminated = isEnded(pod) ? ended?.state?.terminated : undefined;
  return {
    ...base(pod),
    startedAt: lastStart(pod),
    endedAt: isEnded(pod) ? lastEnd(pod) : null,
    phase: status?.phase ?? "Pending",
    exitCode: terminated?.exitCode ?? null,
    reason: status?.reason ?? terminated?.reason ?? waitingReason(pod),
    message: status?.message ?? terminated?.message ?? "",
    output: parseOutput(terminated),
    ...(Object.keys(restarts).length && { restarts }),
  };
}

/** What is known of a pod whatever its state. */
function base(pod: Pod): Attempt {
  return {
    pod: pod.metadata.name,
    podUID: pod.metadata.uid,
    index: indexOf(pod),
    node: pod.spec.nodeName ?? "",
    createdAt: pod.metadata.creationTimestamp ?? null,
    startedAt: null,
    endedAt: null,
    phase: "Pending",
    exitCode: null,
    reason: "",
    message: "",
    peakMemoryBytes: readPeak(pod.metadata.annotations?.[PEAK_MEMORY]),
  };
}

/** The wait for a restart, if no container of the pod runs and one is to be started again; else null. */
function findRestart(pod: Pod): Pick<Attempt, "phase" | "reason" | "nextAt"> | null {
  const all = statuses(pod);
  if (isEnded(pod) || all.some((each) => each.state?.running)) return null;
  const held = all.find((each) => each.lastState?.terminated && each.state?.waiting);
  if (!held) return null;
  const { reason = "", message = "" } = held.state?.waiting ?? {};
  const end = parseTime(held.lastState?.terminated?.finishedAt);
  const delay = parseDelay(message);
  const nextAt = end === null || delay === null ? null : new Date(end + delay).toISOString();
  return { phase: "Waiting", reason, nextAt };
}

/** Milliseconds of "back-off 1m20s restarting failed container=…". */
function parseDelay(message: string): number | null {
  const found = /^back-off (?:(\d+)m)?(\d+)s /.exec(message);
  return found ? (Number(found[1] ?? 0) * 60 + Number(found[2])) * 1000 : null;
}

/** Starts of each container so far, without the first; one that waits to be started again counts as started. */
function restartsOf(pod: Pod): Record<string, number> {
  const waits = (each: ContainerStatus): boolean => Boolean(each.state?.waiting && each.lastState?.terminated);
  const counts = statuses(pod).map((each) => [each.name, (each.restartCount ?? 0) + (waits(each) ? 1 : 0)] as const);
  return Object.fromEntries(counts.filter(([, count]) => count > 0));
}

/** Runs before the newest that the pod's status knows: the last end of each container that was restarted. */
function earlierRuns(pod: Pod): Attempt[] {
  const restarts = restartsOf(pod);
  return statuses(pod).flatMap((each) => {
    const end = each.lastState?.terminated;
    if (!end || !restarts[each.name]) return [];
    return [asRun(base(pod), each.name, (restarts[each.name] as number) - 1, end)];
  });
}

/** A run that has ended and was followed by another, as an attempt. */
function asRun(
  pod: Attempt,
  container: string,
  run: number,
  end: { exitCode: number | null; reason?: string; message?: string; startedAt?: string | null; finishedAt?: string | null },
): Attempt {
  const { restarts: _, nextAt: __, ...shared } = pod;
  return {
    ...shared,
    container,
    run,
    startedAt: end.startedAt ?? null,
    endedAt: end.finishedAt ?? null,
    phase: end.exitCode === 0 ? "Succeeded" : "Failed",
    exitCode: end.exitCode,
    reason: end.reason ?? "",
    message: end.message ?? "",
    peakMemoryBytes: null,
    output: null,
  };
}

/** Why an attempt ended, in a few words: "exit code 1", "OOMKilled (exit code 137)", "Evicted". Empty if it has not failed. A
 * pod that its Job stopped, such as at the deadline, may have no exit code. */
export function explainEnd(attempt: Attempt): string {
  const code = attempt.exitCode;
  const told = attempt.reason && attempt.reason !== "Error" && attempt.reason !== "Completed" ? attempt.reason : "";
  if (code !== null && code !== 0) return told ? `${told} (exit code ${code})` : `exit code ${code}`;
  return attempt.phase === "Failed" ? told || "no exit code" : "";
}

export function isEnded(pod: Pod): boolean {
  return pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
}

/** Newest pod first, then the highest index; in a pod what it does now, then its earlier runs, newest first. */
function sortAttempts(attempts: Attempt[]): Attempt[] {
  const latest = Number.MAX_SAFE_INTEGER;
  return attempts.sort(
    (a, b) =>
      orderOf(b) - orderOf(a) ||
      (b.index ?? 0) - (a.index ?? 0) ||
      (a.pod === b.pod ? (b.run ?? latest) - (a.run ?? latest) : b.pod < a.pod ? -1 : 1),
  );
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

/** When the pod's run began that goes on, or ended last: the first of its containers to start in it. */
function lastStart(pod: Pod): string | null {
  const starts = (pod.status?.containerStatuses ?? []).map(
    (each) => each.state?.running?.startedAt ?? each.state?.terminated?.startedAt,
  );
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
