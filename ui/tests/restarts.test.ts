import { expect, test } from "vitest";
import { addKeptRuns, attemptsOf, explainEnd, mergeAttempts } from "../src/job/attempts";
import type { ContainerStatus, Pod } from "../src/api/types";
import { describeJob } from "../src/job/state";
import { buildTimeline } from "../src/job/timeline";
import { at, makeJob, makePod, NOW } from "./making";

const FAILED = { exitCode: 3, reason: "Error", startedAt: at("14:01:30"), finishedAt: at("14:01:40") };
const BACK_OFF = { reason: "CrashLoopBackOff", message: "back-off 1m20s restarting failed container=main pod=a_default(a-uid)" };
const KEPT = [0, 1, 2].map((run) => ({
  podUID: "a-uid",
  container: "main",
  run,
  startedAt: at(`14:00:${run}0`),
}));

function pod(status: Partial<ContainerStatus>): Pod {
  return makePod("a", { phase: "Running", containerStatuses: [{ name: "main", ...status }] }, { nodeName: "one" });
}

const WAITING = pod({ restartCount: 2, state: { waiting: BACK_OFF }, lastState: { terminated: FAILED } });
const RUNNING = pod({
  restartCount: 2,
  state: { running: { startedAt: at("14:01:50") } },
  lastState: { terminated: FAILED },
});
const JOB = makeJob({ backoffLimit: 6 }, { active: 1 });
JOB.spec.template.spec.restartPolicy = "OnFailure";

function rows(attempts: ReturnType<typeof attemptsOf>): unknown[] {
  return attempts.map((each) => [each.phase, each.run, explainEnd(each)]);
}

test("a container that is restarted has a row for each run that is known, newest first", () => {
  expect(rows(attemptsOf([RUNNING]))).toEqual([
    ["Running", undefined, ""],
    ["Failed", 1, "exit code 3"],
  ]);
  expect(rows(addKeptRuns(attemptsOf([RUNNING]), KEPT))).toEqual([
    ["Running", undefined, ""],
    ["Failed", 1, "exit code 3"],
    ["Failed", 0, "exit code not kept"],
  ]);
});

test("a container in back-off waits, and all its runs have ended", () =>
  expect(rows(addKeptRuns(attemptsOf([WAITING]), KEPT))).toEqual([
    ["Waiting", undefined, ""],
    ["Failed", 2, "exit code 3"],
    ["Failed", 1, "exit code not kept"],
    ["Failed", 0, "exit code not kept"],
  ]));

test("runs that the record has keep their exit codes and times; those of the pod's status are not doubled", () => {
  const runs = [2, 1, 0].map((run) => ({
    ...{ container: "main", run, startedAt: at(`14:00:${run}0`), endedAt: at(`14:00:${run}5`) },
    ...{ exitCode: 40 + run, reason: "Error", message: "" },
  }));
  const living = attemptsOf([WAITING]);
  const recorded = [{ ...(living[0] as (typeof living)[0]), restarts: runs }];
  expect(rows(addKeptRuns(mergeAttempts(living, recorded), KEPT))).toEqual([
    ["Waiting", undefined, ""],
    ["Failed", 2, "exit code 3"],
    ["Failed", 1, "exit code 41"],
    ["Failed", 0, "exit code 40"],
  ]);
  const ofGone = mergeAttempts([], recorded);
  expect(ofGone.map((each) => [each.run, each.endedAt])).toEqual([
    [undefined, null],
    ...runs.map((each) => [each.run, each.endedAt]),
  ]);
});

test("kept runs of other pods, and the newest of a pod that is gone, are no earlier runs", () => {
  const gone = attemptsOf([makePod("a", { phase: "Succeeded" })]);
  expect(rows(addKeptRuns(gone, KEPT)).map((row) => (row as unknown[])[1])).toEqual([undefined, 1, 0]);
  expect(addKeptRuns(attemptsOf([makePod("b")]), KEPT)).toHaveLength(1);
});

test("a Job whose container is restarted names the attempt, its time and the cause", () => {
  const { word, sentence } = describeJob(JOB, attemptsOf([WAITING]), NOW, "UTC");
  expect([word, sentence]).toEqual(["Retrying", "Attempt 4 of 6 at 14:03:00, because exit code 3"]);
  expect(describeJob(JOB, attemptsOf([RUNNING]), NOW, "UTC").sentence).toBe(
    "Attempt 3 of 6 runs since 14:01:50, because the one before ended with exit code 3",
  );
});

test("a timeline has each run, and the back-off between them; a run without a known end is a moment", () => {
  const phases = buildTimeline(RUNNING, [], addKeptRuns(attemptsOf([RUNNING]), KEPT));
  expect(phases.map((each) => `${each.name}${each.hasFailed ? " failed" : ""}`)).toEqual([
    "queued",
    "starting",
    "running failed",
    "backoff",
    "running failed",
    "backoff",
    "running",
  ]);
});
