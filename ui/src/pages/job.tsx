// One Job, live: its state in words, why it waits, indexes, attempts, timeline, resources, events; and what can be done with it.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { HISTORY } from "../actions/verbs";
import { now, useCollection, useObject } from "../api/hooks";
import { useAnswers, usePolled } from "../api/polling";
import { EVENTS, JOBS, NODES, PODS, pathOf } from "../api/resources";
import { AttemptsPanel } from "../components/attempts";
import { Absent, DetailHead, type Fact, Facts, Moment } from "../components/detail";
import { EventsPanel } from "../components/events";
import { IndexGrid } from "../components/index-grid";
import { JobActions } from "../components/job-actions";
import { Bar, Panel, Problem } from "../components/parts";
import { PendingPanel } from "../components/pending";
import { ResourcesPanel } from "../components/resources";
import { ResultPanel } from "../components/result";
import { Timelines } from "../components/timeline";
import { addKeptRuns, attemptsOf, countRestarts, hasMoreRuns, isEnded, mergeAttempts } from "../job/attempts";
import { buildStates, isIndexed } from "../job/indexes";
import { type Attempt, type JobRecord, findTrue } from "../job/objects";
import type { Job, KubeEvent, Node, Pod } from "../api/types";
import { explainPending } from "../job/pending";
import { type PodMetrics, compareResources, sumUsage } from "../job/resources";
import { describeJob, measureProgress } from "../job/state";
import { buildTimeline } from "../job/timeline";
import { formatClock, formatDistance, formatDuration, parseTime } from "../job/times";
import { useKeptRuns } from "../logs/kept-runs";
import { formatCount } from "../job/quantities";

const TIMELINES = 8;
const METRICS_MS = 10_000;
/** A record is written a second or two after what it tells. */
const RECORD_MS = 10_000;
const NODES_MS = 30_000;

export function JobPage({ namespace, name }: { namespace: string; name: string }) {
  const { object, problem } = useObject<Job>(JOBS, namespace, name);
  const last = useSignal<Job | null>(null);
  if (object) last.value = object;
  if (object) return <LivingJob key={object.metadata.uid} job={object} problem={problem} />;
  if (object === null && last.value) return <GoneJob job={last.value} />;
  return (
    <>
      <Problem>{problem}</Problem>
      <Absent object={object} what={`Job ${name} in ${namespace}`}>
        <p>
          It may have been deleted: see the <Link href={`/history?namespace=${namespace}&q=${name}`}>history</Link>.
        </p>
      </Absent>
    </>
  );
}

function GoneJob({ job }: { job: Job }) {
  const { namespace, name, uid } = job.metadata;
  return (
    <>
      <DetailHead
        section="Jobs"
        sectionPath="/jobs"
        namespace={namespace}
        name={name}
        word="Deleted"
        sentence="This Job was deleted"
      />
      <p class="note">
        Its attempts, events and logs are kept: see its <Link href={`/history/${namespace}/${uid}`}>record</Link>.
      </p>
    </>
  );
}

function LivingJob({ job, problem }: { job: Job; problem: string }) {
  const [, go] = useLocation();
  const chosen = useSignal<number | null>(null);
  const { namespace = "", uid } = job.metadata;
  const data = useJobData(job);
  const { pods, attempts, events } = data;
  const state = describeJob(job, attempts, now.value);
  const living = useMemo(() => new Set(pods.map((pod) => pod.metadata.uid)), [pods]);
  const causes = explainPending({ job, pods, events, nodes: data.nodes, now: now.value });
  return (
    <div class="detail-page">
      <DetailHead
        section="Jobs"
        sectionPath="/jobs"
        namespace={namespace}
        name={job.metadata.name}
        word={state.word}
        tone={state.tone}
        sentence={state.sentence}
        actions={<JobActions job={job} onGone={() => go("/jobs")} />}
      />
      <Problem>{problem}</Problem>
      <Progress job={job} />
      <Facts facts={factsOf(job)} />
      <PendingPanel causes={causes} pods={pods.length} />
      <Indexes job={job} pods={pods} chosen={chosen.value} onChoose={(index) => (chosen.value = index)} />
      <div class="detail-columns">
        <div class="column">
          <AttemptsPanel
            attempts={attempts}
            namespace={namespace}
            now={now.value}
            index={chosen.value}
            onClearIndex={() => (chosen.value = null)}
            isIndexed={isIndexed(job)}
            isLiving={(attempt) => living.has(attempt.podUID)}
          />
          <TimelinePanel pods={pods} attempts={attempts} events={events} index={chosen.value} />
        </div>
        <div class="column">
          <ResultPanel attempts={attempts} />
          <ResourcesPanel {...data.resources} />
          <EventsPanel events={events} own={uid} now={now.value} />
        </div>
      </div>
    </div>
  );
}

/** Pods, attempts, events, nodes and usage of a Job: three watches, and the rest asked for now and then. */
function useJobData(job: Job) {
  const { namespace = "", uid } = job.metadata;
  const selection = { namespace, labelSelector: `batch.kubernetes.io/controller-uid=${uid}` };
  const collection = useCollection<Pod>(PODS, selection, trim);
  const eventItems = useCollection<KubeEvent>(EVENTS, { namespace, fieldSelector: `involvedObject.uid=${uid}` }).items;
  const items = collection.items.value;
  const pods = useMemo(() => [...items.values()], [items]);
  const isEndedJob = Boolean(
    findTrue(job.status?.conditions, "Complete") ?? findTrue(job.status?.conditions, "Failed"),
  );
  const living = useMemo(() => attemptsOf(pods), [pods]);
  const ended = (job.status?.failed ?? 0) + (job.status?.succeeded ?? 0);
  const isRecorded = ended > pods.length || hasMoreRuns(living);
  const record = usePolled<JobRecord>(
    isRecorded && collection.state.value === "live" ? `${HISTORY}/namespaces/${namespace}/jobs/${uid}` : null,
    RECORD_MS,
    (job.status?.failed ?? 0) + countRestarts(living),
  );
  const known = useMemo(() => mergeAttempts(living, record?.attempts ?? []), [living, record]);
  const runs = useKeptRuns(namespace, { job: job.metadata.name }, known);
  const attempts = useMemo(() => addKeptRuns(known, runs), [known, runs]);
  const hasPending = pods.some((pod) => (pod.status?.phase ?? "Pending") === "Pending");
  const nodes = usePolled<{ items: Node[] | null }>(hasPending ? pathOf(NODES) : null, NODES_MS)?.items ?? [];
  const podEvents = usePodEvents(namespace, newest(pods, null));
  const events = [...eventItems.value.values(), ...podEvents];
  return { pods, attempts, events, nodes, resources: useResources(job, pods, attempts, isEndedJob) };
}

/** Events of a few pods: asked for, not watched, as a browser holds only six connections to a server. */
function usePodEvents(namespace: string, pods: Pod[]): KubeEvent[] {
  const paths = pods.map(
    (pod) =>
      `${pathOf(EVENTS, namespace)}?${new URLSearchParams({ fieldSelector: `involvedObject.uid=${pod.metadata.uid}`, limit: "50" })}`,
  );
  const changed = pods
    .map((pod) => `${pod.status?.phase} ${pod.status?.conditions?.length} ${pod.status?.containerStatuses?.length}`)
    .join();
  return useAnswers<{ items: KubeEvent[] | null }>(paths, changed).flatMap((each) => each.items ?? []);
}

function useResources(job: Job, pods: Pod[], attempts: Attempt[], isEndedJob: boolean) {
  const { namespace = "", uid } = job.metadata;
  const query = new URLSearchParams({ labelSelector: `batch.kubernetes.io/controller-uid=${uid}` });
  const path = isEndedJob ? null : `/apis/metrics.k8s.io/v1beta1/namespaces/${namespace}/pods?${query}`;
  const metrics = usePolled<{ items: PodMetrics[] | null }>(path, METRICS_MS)?.items ?? [];
  const usage = new Map(metrics.map((each) => [each.metadata.name, sumUsage(each)]));
  const running = pods.filter((pod) => pod.status?.phase === "Running");
  if (running.length === 0) return peakResources(job, attempts);
  const rows = compareResources(running.map((pod) => ({ spec: pod.spec, usage: usage.get(pod.metadata.name) ?? {} })));
  const measured = rows.map((row) => (metrics.length ? row : { ...row, used: null }));
  return { rows: measured, note: running.length === 1 ? "of the running pod" : `of ${running.length} running pods` };
}

/** Requests of one pod, and the most memory that any of them has used: all that is known when nothing runs. */
function peakResources(job: Job, attempts: Attempt[]) {
  const peaks = attempts.map((each) => each.peakMemoryBytes ?? 0);
  const peak = peaks.reduce((most, each) => Math.max(most, each), 0);
  const rows = compareResources([{ spec: job.spec.template.spec, ...(peak ? { usage: { memory: peak } } : {}) }]);
  return { rows, note: peak ? "of one pod, at its peak" : "of one pod" };
}

function Progress({ job }: { job: Job }) {
  const share = measureProgress(job);
  const done = job.status?.succeeded ?? 0;
  if (share === null || (job.spec.completions ?? 1) < 2) return null;
  const words = `${formatCount(done)} of ${formatCount(job.spec.completions ?? 0)} done`;
  return (
    <div class="progress">
      <Bar value={share} most={1} label={words} tone="ok" />
      <span class="muted">{words}</span>
    </div>
  );
}

interface IndexesProps {
  job: Job;
  pods: Pod[];
  chosen: number | null;
  onChoose: (index: number | null) => void;
}

function Indexes({ job, pods, chosen, onChoose }: IndexesProps) {
  const states = useMemo(() => buildStates(job, pods), [job, pods]);
  if (!isIndexed(job) || states.length < 2) return null;
  return (
    <Panel title={`Indexes (${formatCount(job.spec.completions ?? 0)})`}>
      <IndexGrid states={states} chosen={chosen} onChoose={onChoose} />
    </Panel>
  );
}

interface TimelineProps {
  pods: Pod[];
  attempts: Attempt[];
  events: KubeEvent[];
  index: number | null;
}

function TimelinePanel({ pods, attempts, events, index }: TimelineProps) {
  const shown = newest(pods, index);
  if (shown.length === 0) return null;
  const rows = shown.map((pod) => ({
    key: pod.metadata.uid,
    label: pod.metadata.name,
    phases: buildTimeline(pod, events, attempts),
  }));
  return (
    <Panel
      title="Timeline"
      action={pods.length > shown.length ? <span class="muted">newest {shown.length} pods</span> : undefined}
    >
      <Timelines rows={rows} now={now.value} />
    </Panel>
  );
}

function factsOf(job: Job): Fact[] {
  const at = now.value;
  const start = parseTime(job.status?.startTime);
  const failed = findTrue(job.status?.conditions, "Failed");
  const end = parseTime(job.status?.completionTime) ?? parseTime(failed?.lastTransitionTime);
  const created = parseTime(job.metadata.creationTimestamp);
  const owner = job.metadata.ownerReferences?.find((each) => each.kind === "CronJob");
  const before = job.metadata.annotations?.["jobplane.dev/rerun-of"];
  const { namespace } = job.metadata;
  return [
    ["Created", <Moment at={created}>{formatDistance(created ?? at, at)}</Moment>],
    ["Started", start === null ? null : <Moment at={start}>{formatClock(start, at)}</Moment>],
    [end === null ? "Active for" : "Took", start === null ? null : formatDuration((end ?? at) - start)],
    ["Completions", job.spec.completions === undefined ? "one that succeeds" : formatCount(job.spec.completions)],
    ["Parallelism", formatCount(job.spec.parallelism ?? 1)],
    ["Retries", nameRetries(job)],
    [
      "Time limit",
      job.spec.activeDeadlineSeconds === undefined ? null : formatDuration(job.spec.activeDeadlineSeconds * 1000),
    ],
    ["Image", <span class="mono">{job.spec.template.spec.containers[0]?.image}</span>],
    ["CronJob", owner ? <Link href={`/cronjobs/${namespace}/${owner.name}`}>{owner.name}</Link> : null],
    ["Rerun of", before ? <Link href={`/history/${namespace}/${before}`}>an earlier Job</Link> : null],
    ["Runs after", linkAwaited(namespace ?? "", job.metadata.annotations?.["jobplane.dev/after"])],
  ];
}

/** Names of Jobs as the annotation has them: `prepare, cleanup=any`. */
function linkAwaited(namespace: string, text: string | undefined) {
  if (!text) return null;
  return text.split(",").map((each, place) => (
    <>
      {place > 0 && ", "}
      <Link href={`/jobs/${namespace}/${each.trim().split("=")[0]}`}>{each.trim()}</Link>
    </>
  ));
}

function nameRetries(job: Job): string {
  const { backoffLimitPerIndex: each, backoffLimit: all = 6 } = job.spec;
  if ((each ?? all) === 0) return "none";
  return each === undefined ? `up to ${all}` : `up to ${each} for each index`;
}

/** The pods to show one by one: those that were made last, running ones first. */
function newest(pods: Pod[], index: number | null): Pod[] {
  const matching =
    index === null
      ? pods
      : pods.filter((pod) => pod.metadata.labels?.["batch.kubernetes.io/job-completion-index"] === `${index}`);
  const rank = (pod: Pod): number => (isEnded(pod) ? 0 : 1e15) + (parseTime(pod.metadata.creationTimestamp) ?? 0);
  return [...matching]
    .sort((a, b) => rank(b) - rank(a) || (a.metadata.name < b.metadata.name ? -1 : 1))
    .slice(0, TIMELINES);
}

/** A Job may have many thousands of pods: only what this page reads is held. */
function trim(pod: Pod): Pod {
  const { managedFields: _, ...metadata } = pod.metadata as Pod["metadata"] & { managedFields?: unknown };
  const { nodeName, nodeSelector, schedulingGates, containers, initContainers } = pod.spec;
  const slim = (each: Pod["spec"]["containers"][number]) => ({
    name: each.name,
    ...(each.image === undefined ? {} : { image: each.image }),
    ...(each.resources ? { resources: each.resources } : {}),
  });
  const spec: Pod["spec"] = {
    containers: containers.map(slim),
    ...(initContainers ? { initContainers: initContainers.map(slim) } : {}),
    ...(nodeName === undefined ? {} : { nodeName }),
    ...(nodeSelector ? { nodeSelector } : {}),
    ...(schedulingGates ? { schedulingGates } : {}),
  };
  return { metadata, spec, ...(pod.status ? { status: pod.status } : {}) };
}
