/**
 * A Job's state in words: "Attempt 3 of 7 at 14:02:10, because exit code 1".
 *
 * Called by the Job page and the lists. Pure: attempts are those of `attempts.ts`, newest first, and `now` is an argument.
 */

import { explainEnd } from "./attempts";
import { countIndexes, isIndexed, parseRanges } from "./indexes";
import { findTrue, type Attempt } from "./objects";
import type { Job } from "../api/types";
import { formatCount } from "./quantities";
import { formatClock, formatDuration, parseTime } from "./times";

export type Tone = "ok" | "bad" | "busy" | "waiting" | "idle";

export interface JobState {
  /** One word for lists: Complete, Failed, Running, Retrying, Pending, Suspended, Terminating. */
  word: string;
  tone: Tone;
  /** One sentence without a full stop. */
  sentence: string;
}

const BACKOFF = "jobplane.dev/backoff";

export function describeJob(job: Job, attempts: Attempt[], now: number, zone?: string): JobState {
  const complete = findTrue(job.status?.conditions, "Complete");
  const failed = findTrue(job.status?.conditions, "Failed");
  if (complete) return { word: "Complete", tone: "ok", sentence: describeSuccess(job) };
  if (failed)
    return {
      word: "Failed",
      tone: "bad",
      sentence: describeFailure(job, attempts, failed.message ?? failed.reason ?? ""),
    };
  if (job.metadata.deletionTimestamp) {
    return { word: "Terminating", tone: "waiting", sentence: "Being deleted, as soon as its pods have ended" };
  }
  if (job.spec.suspend) return { word: "Suspended", tone: "idle", sentence: describeSuspension(job, now, zone) };
  const target = findTrue(job.status?.conditions, "FailureTarget");
  if (target)
    return {
      word: "Failing",
      tone: "bad",
      sentence: `Failing: ${target.message || target.reason}; its pods are being stopped`,
    };
  return describeOngoing(job, attempts, now, zone);
}

/** When the next pod may be created, if the Job waits for its back-off; null if it does not. */
export function readRetryTime(job: Job, now: number): number | null {
  const [count, time] = (job.metadata.annotations?.[BACKOFF] ?? "").split(";");
  const failures = Number(count);
  const last = parseTime(time);
  if (!Number.isInteger(failures) || failures < 1 || last === null) return null;
  const at = last + delayAfter(failures);
  return at > now ? at : null;
}

/** Progress of a Job between 0 and 1; null if it has no number of completions. */
export function measureProgress(job: Job): number | null {
  const total = job.spec.completions;
  return total ? Math.min(1, (job.status?.succeeded ?? 0) / total) : null;
}

function describeOngoing(job: Job, attempts: Attempt[], now: number, zone?: string): JobState {
  const retry = (job.status?.active ?? 0) === 0 ? readRetryTime(job, now) : null;
  if (retry !== null) return describeRetry(job, attempts, retry, now, zone);
  const running = attempts.filter((each) => each.phase === "Running" && !each.endedAt).length;
  if (running) return { word: "Running", tone: "busy", sentence: describeRun(job, attempts, running, now, zone) };
  const restart = attempts.find((each) => each.phase === "Waiting");
  if (restart) return describeRestart(job, attempts, restart, now, zone);
  const waiting = attempts.filter((each) => each.phase === "Pending");
  if (waiting.length) return { word: "Pending", tone: "waiting", sentence: describeWait(job, waiting) };
  const index = findIndexRetry(job, attempts);
  if (index && !job.status?.active) return describeIndexRetry(job, index, now, zone);
  if (job.status?.active)
    return { word: "Running", tone: "busy", sentence: describeRun(job, attempts, job.status.active, now, zone) };
  return { word: "Pending", tone: "waiting", sentence: "Pending: it has no pods yet" };
}

function describeRetry(job: Job, attempts: Attempt[], at: number, now: number, zone?: string): JobState {
  const end = attempts.find((each) => each.phase === "Failed");
  const because = end && explainEnd(end) ? `, because ${explainEnd(end)}` : "";
  const counted = isSingle(job) ? `Attempt ${nameAttempt(job)}` : `Next attempt${nameFailures(job)}`;
  return { word: "Retrying", tone: "waiting", sentence: `${counted} at ${formatClock(at, now, zone)}${because}` };
}

/** A container that failed, in a pod that stays: it is started again there. */
function describeRestart(job: Job, attempts: Attempt[], restart: Attempt, now: number, zone?: string): JobState {
  const end = attempts.find((each) => each.podUID === restart.podUID && each.phase === "Failed");
  const because = end && explainEnd(end) ? `, because ${explainEnd(end)}` : "";
  const at = parseTime(restart.nextAt);
  const when = at !== null && at > now ? ` at ${formatClock(at, now, zone)}` : " soon";
  const counted = isSingle(job) ? `Attempt ${nameAttempt(job, restart)}` : `${capitalize(describeDone(job))}next attempt`;
  return { word: "Retrying", tone: "waiting", sentence: `${counted}${when}${because}` };
}

interface IndexRetry {
  last: Attempt;
  at: number;
}

/** The index with the earliest next attempt, of a Job whose indexes are retried each on its own account. */
function findIndexRetry(job: Job, attempts: Attempt[]): IndexRetry | null {
  if (job.spec.backoffLimitPerIndex === undefined) return null;
  const failures = new Map<number, { count: number; last: Attempt }>();
  const settled = new Set<number>();
  for (const each of attempts) {
    if (each.index === null) continue;
    if (each.phase !== "Failed") settled.add(each.index);
    const before = failures.get(each.index);
    failures.set(each.index, { count: (before?.count ?? 0) + 1, last: before?.last ?? each });
  }
  let next: IndexRetry | null = null;
  const isFailed = includes(job.status?.failedIndexes);
  for (const [index, { count, last }] of failures) {
    const end = parseTime(last.endedAt);
    if (end === null || settled.has(index) || isFailed(index)) continue;
    const at = end + delayAfter(count);
    if (!next || at < next.at) next = { last, at };
  }
  return next;
}

function describeIndexRetry(job: Job, { last, at }: IndexRetry, now: number, zone?: string): JobState {
  const when = at > now ? ` at ${formatClock(at, now, zone)}` : " soon";
  const because = `because index ${last.index} ended with ${explainEnd(last)}`;
  return {
    word: "Retrying",
    tone: "waiting",
    sentence: `${capitalize(describeDone(job))}next attempt${when}, ${because}`,
  };
}

/** Back-off after so many failures in a row, as the Job controller has it. */
function delayAfter(failures: number): number {
  return Math.min(10_000 * 2 ** Math.min(failures - 1, 10), 600_000);
}

function describeRun(job: Job, attempts: Attempt[], running: number, now: number, zone?: string): string {
  const end = attempts.find((each) => each.phase === "Failed");
  if (isSingle(job)) {
    const current = attempts.find((each) => each.phase === "Running");
    const start = parseTime(current?.startedAt);
    const since = start === null ? "" : ` since ${formatClock(start, now, zone)}`;
    const because = end && explainEnd(end) ? `, because the one before ended with ${explainEnd(end)}` : "";
    return failures(job) || current?.restarts ? `Attempt ${nameAttempt(job, current)} runs${since}${because}` : `Running${since}`;
  }
  return `Running: ${describeDone(job)}${count(running, "pod")} running${nameFailures(job)}`;
}

function describeWait(job: Job, waiting: Attempt[]): string {
  const isPlaced = waiting.some((each) => each.node);
  const why = isPlaced ? "starting" : "waiting for a node";
  if (isSingle(job)) return `Pending: ${failures(job) ? `attempt ${nameAttempt(job)} is ` : ""}${why}`;
  return `Pending: ${describeDone(job)}${count(waiting.length, "pod")} ${why}${nameFailures(job)}`;
}

function describeSuccess(job: Job): string {
  const done = job.status?.succeeded ?? 0;
  const span = spanOf(job);
  const total = job.spec.completions;
  const what =
    total === undefined || total > 1 || done > 1
      ? `Complete: ${formatCount(done)}${total && total > 1 ? ` of ${formatCount(total)}` : ""} done`
      : "Complete";
  const after = failures(job) ? `, after ${count(failures(job), "failure")}` : "";
  return `${what}${span ? ` in ${span}` : ""}${after}`;
}

function describeFailure(job: Job, attempts: Attempt[], why: string): string {
  const tried = failures(job);
  const end = attempts.find((each) => each.phase === "Failed");
  const last = end && explainEnd(end) ? `; the last one ended with ${explainEnd(end)}` : "";
  const indexes = countIndexes(job.status?.failedIndexes);
  const told = indexes ? `${why} (${count(indexes, "index", "indexes")} of ${formatCount(job.spec.completions ?? 0)})` : why;
  return `Failed${tried ? ` after ${count(tried, "failed attempt")}` : ""}: ${lowerFirst(told || "no reason was given")}${last}`;
}

function describeSuspension(job: Job, now: number, zone?: string): string {
  const since = parseTime(findTrue(job.status?.conditions, "Suspended")?.lastTransitionTime);
  return `Suspended${since === null ? "" : ` since ${formatClock(since, now, zone)}`}: no pods run until it is resumed`;
}

function describeDone(job: Job): string {
  const total = job.spec.completions;
  const done = job.status?.succeeded ?? 0;
  return total === undefined ? "" : `${formatCount(done)} of ${formatCount(total)} done, `;
}

/** Whether attempts can be counted as "3 of 7": one pod at a time, and all failures count together. */
function isSingle(job: Job): boolean {
  return (
    (job.spec.parallelism ?? 1) <= 1 &&
    (job.spec.completions ?? 1) === 1 &&
    !(isIndexed(job) && job.spec.backoffLimitPerIndex !== undefined)
  );
}

/** "3 of 7". Restarts in a pod count as failures; the last one that the limit allows is stopped as soon as it starts. */
function nameAttempt(job: Job, current?: Attempt): string {
  const limit = job.spec.backoffLimit ?? 6;
  const total = job.spec.template.spec.restartPolicy === "OnFailure" ? Math.max(1, limit) : limit + 1;
  const restarts = Object.values(current?.restarts ?? {}).reduce((sum, each) => sum + each, 0);
  const number = failures(job) + restarts + 1;
  return `${number} of ${Math.max(total, number)}`;
}

function nameFailures(job: Job): string {
  const failed = failures(job);
  if (!failed) return "";
  return job.spec.backoffLimitPerIndex === undefined
    ? `, ${failed} of at most ${job.spec.backoffLimit ?? 6} failures`
    : `, ${count(failed, "failure")}`;
}

function failures(job: Job): number {
  return job.status?.failed ?? 0;
}

function spanOf(job: Job): string {
  const from = parseTime(job.status?.startTime);
  const to = parseTime(job.status?.completionTime);
  return from === null || to === null ? "" : formatDuration(to - from);
}

function includes(ranges: string | undefined): (index: number) => boolean {
  const pairs = parseRanges(ranges);
  return (index) => pairs.some(([first, last]) => first <= index && index <= last);
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function lowerFirst(text: string): string {
  return /^[A-Z][a-z]/.test(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text;
}

function count(number: number, one: string, many = `${one}s`): string {
  return `${formatCount(number)} ${number === 1 ? one : many}`;
}
