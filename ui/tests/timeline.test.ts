import { expect, test } from "vitest";
import { attemptOf } from "../src/job/attempts";
import { buildRecordTimeline, buildTimeline, spanTimelines, type Phase } from "../src/job/timeline";
import { at, makeEvent, makePod, NOW } from "./making";

const SCHEDULED = { type: "PodScheduled", status: "True", lastTransitionTime: at("14:00:04") };
const TERMINATED = { exitCode: 0, startedAt: at("14:00:20"), finishedAt: at("14:01:00") };
const DONE = makePod(
  "a",
  {
    phase: "Succeeded",
    conditions: [SCHEDULED],
    containerStatuses: [{ name: "main", state: { terminated: TERMINATED } }],
  },
  { nodeName: "one" },
);
const PULLS = [makeEvent("a-uid", "Pulling", "", "14:00:05"), makeEvent("a-uid", "Pulled", "", "14:00:15")];

function write(phases: Phase[]): string[] {
  return phases.map(({ name, from, to }) => `${name} ${clock(from)}-${to === null ? "" : clock(to)}`);
}

function clock(at: number): string {
  return new Date(at).toISOString().slice(14, 19);
}

test("a pod that ended was queued, pulled, started and ran", () =>
  expect(write(buildTimeline(DONE, PULLS))).toEqual([
    "queued 00:00-00:04",
    "pulling 00:04-00:15",
    "starting 00:15-00:20",
    "running 00:20-01:00",
    "done 01:00-01:00",
  ]));

test("without a pull it has started in between", () =>
  expect(write(buildTimeline(DONE, [makeEvent("other", "Pulling", "")]))).toEqual([
    "queued 00:00-00:04",
    "starting 00:04-00:20",
    "running 00:20-01:00",
    "done 01:00-01:00",
  ]));

test("a pod that waits is queued, with no end", () =>
  expect(write(buildTimeline(makePod("a"), []))).toEqual(["queued 00:00-"]));

test("times that run backwards, as clocks of nodes may, are put in order", () => {
  const late = { ...SCHEDULED, lastTransitionTime: at("14:00:30") };
  const phases = buildTimeline({ ...DONE, status: { ...DONE.status, conditions: [late] } }, []);
  for (const phase of phases) expect(phase.to).toBeGreaterThanOrEqual(phase.from);
});

test("a record's attempt has a timeline of its events", () => {
  const events = [makeEvent("a-uid", "Scheduled", "", "14:00:04"), ...PULLS];
  expect(write(buildRecordTimeline(attemptOf(DONE), events))[1]).toBe("pulling 00:04-00:15");
});

test("timelines together span from the first moment to the last", () =>
  expect(spanTimelines([buildTimeline(DONE, []), buildTimeline(makePod("b"), [])], NOW).map(clock)).toEqual([
    "00:00",
    "02:00",
  ]));
