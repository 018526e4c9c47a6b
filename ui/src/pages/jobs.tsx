// The list of Jobs.
import { JOBS } from "../api/resources";
import type { Job } from "../api/types";
import { ListPage } from "../components/listing";
import { Age, Bar, Empty, Status, type Tone } from "../components/parts";
import type { Column } from "../components/table";

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

const linkOf = (job: Job): string => `/jobs/${job.metadata.namespace}/${job.metadata.name}`;

/** Keep of a Job only what lists read: a fleet's Jobs have large templates. */
export const trimJob = ({ metadata, spec, status }: Job): Job => ({
  metadata: { ...metadata, annotations: {} },
  spec: { ...spec, template: { spec: { containers: [] } } },
  ...(status ? { status } : {}),
});

export function JobsPage() {
  return (
    <ListPage
      title="Jobs"
      resource={JOBS}
      columns={COLUMNS}
      linkOf={linkOf}
      states={["Running", "Pending", "Suspended", "Complete", "Failed"]}
      stateOf={stateOfJob}
      trim={trimJob}
      empty={
        <Empty title="No Jobs yet">
          <p>Start one in a terminal:</p>
          <pre>jobplane run -- echo hello</pre>
        </Empty>
      }
    />
  );
}
