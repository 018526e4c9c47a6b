// The record of one Job, which may be gone: result, attempts, timeline, events, logs; and run it again.
import { useSignal } from "@preact/signals";
import { Link } from "wouter-preact";
import { HISTORY } from "../actions/verbs";
import { now } from "../api/hooks";
import { usePolled } from "../api/polling";
import { AttemptsPanel } from "../components/attempts";
import { DetailHead, type Fact, Facts, Moment } from "../components/detail";
import { EventsPanel } from "../components/events";
import { IndexGrid } from "../components/index-grid";
import { RecordActions } from "../components/job-actions";
import { Empty, Panel } from "../components/parts";
import { ResultPanel } from "../components/result";
import { Timelines } from "../components/timeline";
import { addKeptRuns, mergeAttempts } from "../job/attempts";
import { buildStates, isIndexed } from "../job/indexes";
import type { Attempt, JobRecord } from "../job/objects";
import type { Job } from "../api/types";
import { describeJob } from "../job/state";
import { buildRecordTimeline } from "../job/timeline";
import { formatClock, formatDistance, formatDuration, parseTime } from "../job/times";
import { useRecordedRuns } from "../logs/kept-runs";
import { formatCount } from "../job/quantities";

const TIMELINES = 8;
const AGAIN_MS = 15_000;

export function RecordPage({ namespace, uid }: { namespace: string; uid: string }) {
  const record = usePolled<JobRecord>(`${HISTORY}/namespaces/${encodeURIComponent(namespace)}/jobs/${uid}`, AGAIN_MS);
  if (record) return <Record record={record} />;
  return (
    <Empty title="No record yet">
      <p>Records are kept for a limited time, and are readable for users who may read the history of this namespace.</p>
    </Empty>
  );
}

function Record({ record }: { record: JobRecord }) {
  const chosen = useSignal<number | null>(null);
  const { namespace = "", name, uid } = record.metadata;
  const job: Job = {
    metadata: record.metadata,
    spec: record.spec,
    ...(record.status ? { status: record.status } : {}),
  };
  const isRestarting = record.spec.template.spec.restartPolicy === "OnFailure";
  const runs = useRecordedRuns(namespace, isRestarting ? name : null);
  const newestFirst = addKeptRuns(mergeAttempts([], record.attempts ?? []), runs);
  const state = describeJob(job, newestFirst, now.value);
  const isGone = Boolean(record.deletionTime);
  const sentence = record.result === "Deleted" ? "Deleted before it ended" : state.sentence;
  return (
    <div class="detail-page">
      <DetailHead
        section="History"
        sectionPath="/history"
        namespace={namespace}
        name={name}
        word={record.result}
        tone={record.result === "Deleted" ? "idle" : state.tone}
        sentence={sentence}
        actions={<RecordActions record={record} />}
      />
      <Facts facts={factsOf(record)} />
      <Indexes job={job} chosen={chosen.value} onChoose={(index) => (chosen.value = index)} />
      <div class="detail-columns">
        <div class="column">
          <AttemptsPanel
            attempts={newestFirst}
            namespace={namespace}
            now={now.value}
            index={chosen.value}
            onClearIndex={() => (chosen.value = null)}
            isIndexed={isIndexed(job)}
            omitted={record.attemptsOmitted ?? 0}
            isLiving={() => !isGone}
          />
          <TimelinePanel attempts={newestFirst} record={record} />
        </div>
        <div class="column">
          <ResultPanel attempts={newestFirst} />
          <EventsPanel events={record.events ?? []} own={uid} now={now.value} />
        </div>
      </div>
    </div>
  );
}

function Indexes({
  job,
  chosen,
  onChoose,
}: {
  job: Job;
  chosen: number | null;
  onChoose: (index: number | null) => void;
}) {
  if (!isIndexed(job) || (job.spec.completions ?? 0) < 2) return null;
  return (
    <Panel title={`Indexes (${formatCount(job.spec.completions ?? 0)})`}>
      <IndexGrid states={buildStates(job, [])} chosen={chosen} onChoose={onChoose} />
    </Panel>
  );
}

function TimelinePanel({ attempts, record }: { attempts: Attempt[]; record: JobRecord }) {
  const pods = attempts.filter((each) => !each.container);
  const rows = pods.slice(0, TIMELINES).map((each) => ({
    key: each.podUID,
    label: each.pod,
    phases: buildRecordTimeline(each, record.events ?? [], attempts),
  }));
  const end = parseTime(record.endTime ?? record.deletionTime) ?? now.value;
  if (rows.length === 0) return null;
  return (
    <Panel title="Timeline">
      <Timelines rows={rows} now={end} />
    </Panel>
  );
}

function factsOf(record: JobRecord): Fact[] {
  const at = now.value;
  const [start, end] = [parseTime(record.startTime), parseTime(record.endTime)];
  const deleted = parseTime(record.deletionTime);
  const { namespace, name } = record.metadata;
  return [
    ["Started", start === null ? null : <Moment at={start}>{formatClock(start, at)}</Moment>],
    ["Ended", end === null ? null : <Moment at={end}>{formatClock(end, at)}</Moment>],
    ["Took", start === null || end === null ? null : formatDuration(end - start)],
    ["Deleted", deleted === null ? null : <Moment at={deleted}>{formatDistance(deleted, at)}</Moment>],
    ["Job", deleted === null ? <Link href={`/jobs/${namespace}/${name}`}>still there</Link> : null],
    ["Completions", record.spec.completions === undefined ? null : formatCount(record.spec.completions)],
    ["Image", <span class="mono">{record.spec.template.spec.containers[0]?.image}</span>],
    ["Rerun of", record.rerunOf ? <Link href={`/history/${namespace}/${record.rerunOf}`}>an earlier Job</Link> : null],
  ];
}
