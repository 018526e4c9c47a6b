import { expect, test } from "vitest";
import { attemptsOf, explainEnd, mergeAttempts } from "../src/job/attempts";
import { describeJob, measureProgress, readRetryTime } from "../src/job/state";
import type { Job, Pod } from "../src/api/types";
import { at, makeFailedPod, makeJob, makePod, NOW } from "./making";

function describe(job: Job, pods: Pod[] = []): [string, string] {
  const { word, sentence } = describeJob(job, attemptsOf(pods), NOW, "UTC");
  return [word, sentence];
}

const RUNNING = {
  phase: "Running",
  containerStatuses: [{ name: "main", state: { running: { startedAt: at("14:01:30") } } }],
};
const FINISHED = {
  startTime: at("14:00:00"),
  completionTime: at("14:00:12"),
  conditions: [{ type: "Complete", status: "True" }],
};

test("a Job that waits for its back-off names the attempt, its time and the cause", () => {
  const job = makeJob({}, { failed: 2 }, { "jobplane.dev/backoff": `2;${at("14:01:50")}` });
  expect(describe(job, [makeFailedPod("a", 1)])).toEqual([
    "Retrying",
    "Attempt 3 of 7 at 14:02:10, because exit code 1",
  ]);
});

test("a Job whose indexes are retried on their own names the index", () => {
  const job = makeJob(
    { completions: 5, completionMode: "Indexed", backoffLimitPerIndex: 2 },
    { succeeded: 1, failedIndexes: "0" },
  );
  const failed = (name: string, index: number): Pod => ({
    ...makeFailedPod(name, 3),
    metadata: makePod(name, {}, {}, index).metadata,
  });
  const pods = [failed("a", 0), failed("b", 3), makePod("c", { phase: "Succeeded" }, {}, 1)];
  const { word, sentence } = describeJob(job, attemptsOf(pods), Date.parse(at("14:01:05")), "UTC");
  expect([word, sentence]).toEqual([
    "Retrying",
    "1 of 5 done, next attempt at 14:01:10, because index 3 ended with exit code 3",
  ]);
});

test("back-off that is over, or no back-off, is none", () => {
  expect(readRetryTime(makeJob({}, {}, { "jobplane.dev/backoff": `1;${at("14:01:00")}` }), NOW)).toBeNull();
  expect(readRetryTime(makeJob({}, {}, { "jobplane.dev/backoff": "soon" }), NOW)).toBeNull();
});

test("a first attempt that runs says since when", () =>
  expect(describe(makeJob({}, { active: 1 }), [makePod("a", RUNNING)])).toEqual(["Running", "Running since 14:01:30"]));

test("a later attempt says why the one before ended", () =>
  expect(
    describe(makeJob({}, { active: 1, failed: 1 }), [makeFailedPod("a", 137, "OOMKilled"), makePod("b", RUNNING)]),
  ).toEqual([
    "Running",
    "Attempt 2 of 7 runs since 14:01:30, because the one before ended with OOMKilled (exit code 137)",
  ]));

test("a Job of many pods counts them, and its failures", () =>
  expect(
    describe(makeJob({ completions: 10, parallelism: 4 }, { active: 2, succeeded: 3, failed: 2 }), [
      makePod("a", RUNNING),
      makePod("b", RUNNING),
    ]),
  ).toEqual(["Running", "Running: 3 of 10 done, 2 pods running, 2 of at most 6 failures"]));

test("a pod without a node waits for one", () =>
  expect(describe(makeJob({}, { active: 1 }), [makePod("a", { phase: "Pending" })])).toEqual([
    "Pending",
    "Pending: waiting for a node",
  ]));

test("success says how many and how long", () => {
  expect(describe(makeJob({}, { ...FINISHED, succeeded: 1 }))).toEqual(["Complete", "Complete in 12s"]);
  expect(describe(makeJob({ completions: 3 }, { ...FINISHED, succeeded: 3, failed: 1 }))[1]).toBe(
    "Complete: 3 of 3 done in 12s, after 1 failure",
  );
});

test("failure says after how many attempts and why", () => {
  const conditions = [
    {
      type: "Failed",
      status: "True",
      reason: "BackoffLimitExceeded",
      message: "Job has reached the specified backoff limit",
    },
  ];
  expect(describe(makeJob({ backoffLimit: 1 }, { failed: 2, conditions }), [makeFailedPod("a", 3)])).toEqual([
    "Failed",
    "Failed after 2 failed attempts: job has reached the specified backoff limit; the last one ended with exit code 3",
  ]);
});

test("a suspended Job says since when", () => {
  const conditions = [{ type: "Suspended", status: "True", lastTransitionTime: at("13:00:00") }];
  expect(describe(makeJob({ suspend: true }, { conditions }))).toEqual([
    "Suspended",
    "Suspended since 13:00:00: no pods run until it is resumed",
  ]);
});

test("progress is the share of completions", () =>
  expect([
    measureProgress(makeJob({ completions: 4 }, { succeeded: 1 })),
    measureProgress({ ...makeJob(), spec: { template: makeJob().spec.template } }),
  ]).toEqual([0.25, null]));

test("an attempt has what the pod's containers tell", () => {
  const [attempt] = attemptsOf([makeFailedPod("a", 137, "OOMKilled")]);
  expect(attempt).toMatchObject({
    pod: "a",
    node: "one",
    exitCode: 137,
    reason: "OOMKilled",
    startedAt: at("14:00:05"),
    endedAt: at("14:01:00"),
  });
  expect(explainEnd(attempt!)).toBe("OOMKilled (exit code 137)");
});

test("peak memory and the result are read from the pod", () => {
  const terminated = { exitCode: 0, reason: "Completed", message: '{"rows": 3}', finishedAt: at("14:01:00") };
  const pod = makePod("a", { phase: "Succeeded", containerStatuses: [{ name: "main", state: { terminated } }] });
  pod.metadata.annotations = { "jobplane.dev/peak-memory": '{"main": 1048576, "side": 5}' };
  expect(attemptsOf([pod])[0]).toMatchObject({ peakMemoryBytes: 1048576, output: { rows: 3 } });
});

test("a pod that lives replaces its attempt in the record, and others stay", () => {
  const [living] = attemptsOf([makePod("a", RUNNING)]);
  const recorded = [
    { ...living!, phase: "Pending", restarts: [] },
    { ...living!, pod: "b", podUID: "b-uid", restarts: [] },
  ];
  expect(
    mergeAttempts([living!], recorded)
      .map((each) => `${each.pod} ${each.phase}`)
      .sort(),
  ).toEqual(["a Running", "b Running"]);
});
