// The list of Jobs.
import { Link } from "wouter-preact";
import { JOB_ACTIONS } from "../actions/row-actions";
import { JOBS } from "../api/resources";
import type { Job } from "../api/types";
import { Chip } from "../components/filters";
import { ListPage, useAddress } from "../components/listing";
import { Age, Bar, Empty, Status, type Tone } from "../components/parts";
import type { Column } from "../components/table";
import { formatCount } from "../job/quantities";

const TONES: Record<string, Tone> = {
  Running: "info",
  Pending: "warn",
  Waiting: "warn",
  Suspended: "muted",
  Complete: "ok",
  Failed: "bad",
  Terminating: "muted",
};

/** A Job's state in one word, as `kubectl get jobs` has it, but for Pending: no pod of it runs yet. */
export function stateOfJob(job: Job): string {
  const conditions = job.status?.conditions ?? [];
  const has = (type: string): boolean => conditions.some((each) => each.type === type && each.status === "True");
  if (has("Complete")) return "Complete";
  if (has("Failed")) return "Failed";
  if (job.metadata.deletionTimestamp) return "Terminating";
  if (job.spec.suspend) return "Suspended";
  return (job.status?.ready ?? 0) > 0 ? "Running" : "Pending";
}

/** The end of a Job, if it has ended. */
export const endOfJob = (job: Job): string | undefined =>
  job.status?.completionTime ?? job.status?.conditions?.find((each) => each.type === "Failed" && each.status === "True")?.lastTransitionTime;

const wanted = (job: Job): number => job.spec.completions ?? job.spec.parallelism ?? 1;

const COLUMNS: readonly Column<Job>[] = [
  {
    name: "Name",
    width: "minmax(12rem, 2.2fr)",
    cell: (job) => job.metadata.name,
    by: (job) => job.metadata.name,
  },
  { name: "Namespace", width: "minmax(6rem, 1fr)", cell: (job) => job.metadata.namespace, by: (job) => job.metadata.namespace ?? "", isMinor: true },
  {
    name: "State",
    width: "8rem",
    cell: (job) => <Status tone={TONES[stateOfJob(job)] ?? "muted"}>{stateOfJob(job)}</Status>,
    by: stateOfJob,
  },
  {
    name: "Done",
    width: "minmax(7rem, 1fr)",
    cell: (job) => {
      const done = job.status?.succeeded ?? 0;
      return (
        <span class="done">
          <span>{done}/{wanted(job)}</span>
          <Bar value={done} most={wanted(job)} label={`${done} of ${wanted(job)} done`} tone={job.status?.failed ? "warn" : "ok"} />
        </span>
      );
    },
    by: (job) => (job.status?.succeeded ?? 0) / Math.max(1, wanted(job)),
    isMinor: true,
  },
  { name: "Failed", width: "5rem", cell: (job) => job.status?.failed ?? 0, by: (job) => job.status?.failed ?? 0, isMinor: true, isNumber: true },
  {
    name: "Duration",
    width: "6.5rem",
    cell: (job) => <Age since={job.status?.startTime} until={endOfJob(job)} />,
    by: (job) => (job.status?.startTime ? Date.parse(endOfJob(job) ?? new Date().toISOString()) - Date.parse(job.status.startTime) : -1),
    isMinor: true,
    isNumber: true,
  },
  {
    name: "Age",
    width: "6rem",
    cell: (job) => <Age since={job.metadata.creationTimestamp} />,
    by: (job) => -Date.parse(job.metadata.creationTimestamp),
    isNumber: true,
  },
];

/** The CronJob that a Job is a run of. */
export const cronJobOf = (job: Job): string =>
  job.metadata.ownerReferences?.find((each) => each.controller && each.kind === "CronJob")?.name ?? "";

const isRun = (job: Job): boolean => cronJobOf(job) !== "";

const WITH_CRONJOB: readonly Column<Job>[] = COLUMNS.toSpliced(2, 0, {
  name: "CronJob",
  width: "minmax(7rem, 1fr)",
  cell: (job) =>
    isRun(job) ? <Link href={`/cronjobs/${job.metadata.namespace}/${cronJobOf(job)}`}>{cronJobOf(job)}</Link> : <span class="muted">–</span>,
  by: cronJobOf,
  isMinor: true,
});

const LINKS = [
  { name: "Logs", to: (job: Job) => `/logs/${job.metadata.namespace}/job/${job.metadata.name}` },
  {
    name: "Pods",
    to: (job: Job) => `/pods?${new URLSearchParams({ namespace: job.metadata.namespace ?? "", labels: `batch.kubernetes.io/job-name=${job.metadata.name}` })}`,
  },
];

const linkOf = (job: Job): string => `/jobs/${job.metadata.namespace}/${job.metadata.name}`;

/** Keep of a Job only what lists read: a fleet's Jobs have large templates. */
export const trimJob = ({ metadata, spec, status }: Job): Job => ({
  metadata: { ...metadata, annotations: {} },
  spec: { ...spec, template: { spec: { containers: [] } } },
  ...(status ? { status } : {}),
});

/** Runs of CronJobs are hidden, as they are many, unless the address asks for them: `runs=all`, or `cronjob=NAME` for those of one. */
export function JobsPage() {
  const [params, set] = useAddress();
  const cronJob = params.get("cronjob") ?? "";
  const areShown = params.get("runs") === "all" || cronJob !== "";
  const describeHidden = (runs: readonly Job[]) => (
    <>
      {describeRuns(runs)}{" "}
      <button type="button" class="link" onClick={() => set("runs", "all")}>
        Show all
      </button>
    </>
  );
  return (
    <ListPage
      title="Jobs"
      resource={JOBS}
      columns={areShown ? WITH_CRONJOB : COLUMNS}
      linkOf={linkOf}
      states={["Running", "Pending", "Suspended", "Complete", "Failed"]}
      stateOf={stateOfJob}
      trim={trimJob}
      actions={JOB_ACTIONS}
      links={LINKS}
      {...(cronJob ? { matches: (job: Job) => cronJobOf(job) === cronJob } : {})}
      {...(areShown ? {} : { isHidden: isRun, describeHidden })}
      action={
        cronJob ? (
          <Chip name="CronJob" value={cronJob} onRemove={() => set("cronjob", "")} />
        ) : areShown ? (
          <Chip name="Runs of CronJobs" value="shown" onRemove={() => set("runs", "")} />
        ) : null
      }
      empty={
        <Empty title="No Jobs yet">
          <p>Start one in a terminal:</p>
          <pre>jobplane run -- echo hello</pre>
        </Empty>
      }
    />
  );
}

/** How many there are, and whether some of them failed, so that no failure is out of sight. */
function describeRuns(runs: readonly Job[]): string {
  const failed = runs.filter((job) => stateOfJob(job) === "Failed").length;
  const one = runs.length === 1;
  return `${formatCount(runs.length)} ${one ? "run" : "runs"} of CronJobs ${one ? "is" : "are"} hidden${failed > 0 ? `, ${formatCount(failed)} failed` : ""}.`;
}
