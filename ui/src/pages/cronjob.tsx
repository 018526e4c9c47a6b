// One CronJob, live: its schedule in words, its last runs as bars, its next runs; suspend, trigger, delete.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { ActionButton, Outcome, press, useAttempting } from "../actions/action";
import { ConfirmedButton, YamlButton } from "../actions/buttons";
import { HISTORY, deleteCronJob, suspendCronJob, triggerCronJob } from "../actions/verbs";
import { now, useCollection, useObject } from "../api/hooks";
import { usePolled } from "../api/polling";
import { CRONJOBS, EVENTS, JOBS } from "../api/resources";
import { Absent, DetailHead, type Fact, Facts, Moment } from "../components/detail";
import { EventsPanel } from "../components/events";
import { useKeys } from "../components/keys";
import { Panel, Problem } from "../components/parts";
import { type Run, RunsPanel } from "../components/runs";
import { listNext, parseSchedule, resolveHashes } from "../job/cron";
import { type JobRecord, findTrue } from "../job/objects";
import type { CronJob, Job, KubeEvent } from "../api/types";
import { describeJob } from "../job/state";
import { formatClock, formatDistance, parseTime } from "../job/times";

const NEXT = 5;

export function CronJobPage({ namespace, name }: { namespace: string; name: string }) {
  const { object, problem } = useObject<CronJob>(CRONJOBS, namespace, name);
  if (object) return <LivingCronJob key={object.metadata.uid} cronJob={object} problem={problem} />;
  return (
    <>
      <Problem>{problem}</Problem>
      <Absent object={object} what={`CronJob ${name} in ${namespace}`} />
    </>
  );
}

function LivingCronJob({ cronJob, problem }: { cronJob: CronJob; problem: string }) {
  const { namespace = "", name, uid } = cronJob.metadata;
  const events = [
    ...useCollection<KubeEvent>(EVENTS, { namespace, fieldSelector: `involvedObject.uid=${uid}` }).items.value.values(),
  ];
  const runs = useRuns(cronJob);
  const { zone, next, resolved } = useSchedule(cronJob);
  const isSuspended = cronJob.spec.suspend === true;
  const first = next[0];
  const sentence = isSuspended
    ? "Suspended: it does not run until it is resumed"
    : first === undefined
      ? "Its schedule has no next run"
      : `Runs next ${formatDistance(first, now.value)}, at ${formatClock(first, now.value, zone)} (${zone})`;
  return (
    <div class="detail-page">
      <DetailHead
        section="CronJobs"
        sectionPath="/cronjobs"
        namespace={namespace}
        name={name}
        word={isSuspended ? "Suspended" : "Active"}
        tone={isSuspended ? "idle" : "ok"}
        sentence={sentence}
        actions={<CronJobActions cronJob={cronJob} />}
      />
      <Problem>{problem}</Problem>
      <Facts facts={factsOf(cronJob, zone, resolved)} />
      <RunsPanel runs={runs} namespace={namespace} name={name} now={now.value} />
      <div class="detail-columns">
        <div class="column">
          <NextPanel next={isSuspended ? [] : next} zone={zone} />
        </div>
        <div class="column">
          <EventsPanel events={events} own={uid} now={now.value} />
        </div>
      </div>
    </div>
  );
}

/** Its Jobs that live, and those of the history, oldest first. */
function useRuns(cronJob: CronJob): Run[] {
  const { namespace = "", uid } = cronJob.metadata;
  const jobs = [...useCollection<Job>(JOBS, { namespace }).items.value.values()].filter((job) =>
    job.metadata.ownerReferences?.some((each) => each.uid === uid),
  );
  const path = `${HISTORY}/namespaces/${namespace}/jobs?${new URLSearchParams({ limit: "200" })}`;
  const records = usePolled<{ items: JobRecord[] | null }>(path, 30_000, jobs.length)?.items ?? [];
  const known = new Set(jobs.map((job) => job.metadata.uid));
  const ended = records.filter(
    (each) => !known.has(each.metadata.uid) && each.metadata.ownerReferences?.some((owner) => owner.uid === uid),
  );
  return [...jobs.map(runOfJob), ...ended.map(runOfRecord)].sort(
    (a, b) => (a.start ?? a.created) - (b.start ?? b.created),
  );
}

function runOfJob(job: Job): Run {
  const failed = findTrue(job.status?.conditions, "Failed");
  return {
    uid: job.metadata.uid,
    name: job.metadata.name,
    created: parseTime(job.metadata.creationTimestamp) ?? 0,
    start: parseTime(job.status?.startTime),
    end: parseTime(job.status?.completionTime) ?? parseTime(failed?.lastTransitionTime),
    word: describeJob(job, [], Date.now()).word,
    isLiving: true,
  };
}

function runOfRecord(record: JobRecord): Run {
  return {
    uid: record.metadata.uid,
    name: record.metadata.name,
    created: parseTime(record.metadata.creationTimestamp) ?? 0,
    start: parseTime(record.startTime),
    end: parseTime(record.endTime),
    word: record.result,
    isLiving: false,
  };
}

function useSchedule(cronJob: CronJob): { zone: string; next: number[]; resolved: string } {
  const { namespace, name } = cronJob.metadata;
  const { schedule, timeZone } = cronJob.spec;
  const resolved = useSignal(/H/.test(schedule) ? "" : schedule);
  useEffect(() => {
    let isShown = true;
    void resolveHashes(schedule, `${namespace}/${name}`).then((text) => {
      if (isShown) resolved.value = text;
    });
    return () => {
      isShown = false;
    };
  }, [schedule, namespace, name]);
  const zone = timeZone ?? "UTC";
  const parsed = resolved.value ? parseSchedule(resolved.value, zone) : null;
  return { zone, next: parsed ? listNext(parsed, now.value, NEXT) : [], resolved: resolved.value };
}

function CronJobActions({ cronJob }: { cronJob: CronJob }) {
  const [, go] = useLocation();
  const attempting = useAttempting();
  const { name, namespace = "" } = cronJob.metadata;
  const on = { group: "batch", resource: "cronjobs", namespace, name };
  const create = { verb: "create", group: "batch", resource: "jobs", namespace };
  const trigger = (): void =>
    void attempting.run(async () => void go(`/jobs/${namespace}/${(await triggerCronJob(cronJob)).metadata.name}`));
  const toggle = (): void =>
    void attempting.run(async () => void (await suspendCronJob(cronJob, !cronJob.spec.suspend)));
  const remove = (): void => void attempting.run(async () => deleteCronJob(cronJob).then(() => void go("/cronjobs")));
  useKeys({ t: () => press("t"), s: () => press("s") });
  return (
    <>
      <ActionButton right={create} attempting={attempting} letter="t" onAct={trigger}>
        Trigger now
      </ActionButton>
      <ActionButton right={{ ...on, verb: "patch" }} attempting={attempting} letter="s" onAct={toggle}>
        {cronJob.spec.suspend ? "Resume" : "Suspend"}
      </ActionButton>
      <YamlButton object={cronJob} apiVersion="batch/v1" kind="CronJob" />
      <ConfirmedButton
        {...{ attempting, letter: "d", verb: "Delete", onConfirm: remove }}
        right={{ ...on, verb: "delete" }}
        question={`Delete CronJob ${name}?`}
      >
        <p>Its Jobs are deleted, too. Their attempts and logs stay in the history.</p>
      </ConfirmedButton>
      <Outcome attempting={attempting} />
    </>
  );
}

function NextPanel({ next, zone }: { next: number[]; zone: string }) {
  return (
    <Panel title="Next runs" action={<span class="muted">{zone}</span>}>
      {next.length === 0 && <p class="panel-note">None is planned.</p>}
      <ol class="next-runs">
        {next.map((at) => (
          <li key={at}>
            <Moment at={at}>{formatClock(at, now.value, zone)}</Moment>
            <span class="muted">{formatDistance(at, now.value)}</span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function factsOf(cronJob: CronJob, zone: string, resolved: string): Fact[] {
  const at = now.value;
  const last = parseTime(cronJob.status?.lastScheduleTime);
  const success = parseTime(cronJob.status?.lastSuccessfulTime);
  const { schedule } = cronJob.spec;
  const container = cronJob.spec.jobTemplate.spec.template.spec.containers[0];
  return [
    ["Schedule", <span class="mono">{schedule}</span>],
    ["Which means", resolved && resolved !== schedule ? <span class="mono">{resolved}</span> : null],
    ["Time zone", zone],
    ["Last run", last === null ? "never" : <Moment at={last}>{formatDistance(last, at)}</Moment>],
    ["Last success", success === null ? "never" : <Moment at={success}>{formatDistance(success, at)}</Moment>],
    [
      "If one still runs",
      { Allow: "start another", Forbid: "skip", Replace: "replace it" }[cronJob.spec.concurrencyPolicy ?? "Allow"] ??
        null,
    ],
    ["Missed runs", cronJob.metadata.annotations?.["jobplane.dev/catch-up"] ?? null],
    ["Image", <span class="mono">{container?.image}</span>],
  ];
}
