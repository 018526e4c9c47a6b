// The list of CronJobs: schedules, last and next runs.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { CRONJOB_ACTIONS } from "../actions/row-actions";
import { now } from "../api/hooks";
import { CRONJOBS } from "../api/resources";
import type { CronJob } from "../api/types";
import { ListPage } from "../components/listing";
import { Age, Empty, Status } from "../components/parts";
import type { Column } from "../components/table";
import { formatDistance, formatMoment } from "../job/times";
import { type Schedule, parseSchedule, resolveHashes } from "../job/cron";

const linkOf = (each: CronJob): string => `/cronjobs/${each.metadata.namespace}/${each.metadata.name}`;

const LINKS = [{ name: "All runs", to: runsOf }];

function runsOf({ metadata: { namespace = "", name } }: CronJob): string {
  return `/jobs?${new URLSearchParams({ namespace, cronjob: name })}`;
}

const STATES = ["Active", "Running", "Suspended"] as const;

function stateOf(each: CronJob): (typeof STATES)[number] {
  if (each.spec.suspend) return "Suspended";
  return each.status?.active?.length ? "Running" : "Active";
}

const TONES = { Active: "ok", Running: "info", Suspended: "muted" } as const;

const COLUMNS: readonly Column<CronJob>[] = [
  { name: "Name", width: "minmax(11rem, 2fr)", cell: (each) => each.metadata.name, by: (each) => each.metadata.name },
  { name: "Namespace", width: "minmax(6rem, 1fr)", cell: (each) => each.metadata.namespace, by: (each) => each.metadata.namespace ?? "", isMinor: true },
  { name: "State", width: "8rem", cell: (each) => <Status tone={TONES[stateOf(each)]}>{stateOf(each)}</Status>, by: stateOf },
  {
    name: "Schedule",
    width: "minmax(9rem, 1fr)",
    cell: (each) => (
      <span class="mono" title={each.spec.timeZone}>
        {each.spec.schedule}
      </span>
    ),
    by: (each) => each.spec.schedule,
    isMinor: true,
  },
  {
    name: "Last run",
    width: "7rem",
    cell: (each) => <Age since={each.status?.lastScheduleTime} />,
    by: (each) => -Date.parse(each.status?.lastScheduleTime ?? "1970-01-01"),
    isMinor: true,
    isNumber: true,
  },
  { name: "Next run", width: "7rem", cell: (each) => <NextRun cronJob={each} />, isNumber: true },
  { name: "Age", width: "6rem", cell: (each) => <Age since={each.metadata.creationTimestamp} />, by: (each) => -Date.parse(each.metadata.creationTimestamp), isMinor: true, isNumber: true },
];

/** The time until the next run, counting down. */
function NextRun({ cronJob: { metadata, spec } }: { cronJob: CronJob }) {
  const schedule = useSignal<Schedule | null>(null);
  const next = useSignal<number | null>(null);
  useEffect(() => {
    let isShown = true;
    void resolveHashes(spec.schedule, `${metadata.namespace}/${metadata.name}`).then((text) => {
      if (isShown) schedule.value = parseSchedule(text, spec.timeZone);
    });
    return () => {
      isShown = false;
    };
  }, [spec.schedule, spec.timeZone]);
  if (spec.suspend) return <span class="muted">–</span>;
  if (schedule.value && (next.peek() ?? 0) <= now.value) next.value = schedule.value.next(now.value);
  if (!next.value) return <span class="muted">–</span>;
  return <time title={formatMoment(next.value)}>{formatDistance(next.value, now.value)}</time>;
}

/** Keep of a CronJob only what the list reads. */
const trim = (each: CronJob): CronJob => ({
  ...each,
  metadata: { ...each.metadata, annotations: {} },
  spec: { ...each.spec, jobTemplate: { spec: { template: { spec: { containers: [] } } } } },
});

export function CronJobsPage() {
  return (
    <ListPage
      title="CronJobs"
      resource={CRONJOBS}
      columns={COLUMNS}
      linkOf={linkOf}
      states={STATES}
      stateOf={stateOf}
      sorting={{ column: "Name", isDescending: false }}
      trim={trim}
      actions={CRONJOB_ACTIONS}
      links={LINKS}
      empty={
        <Empty title="No CronJobs">
          <p>A CronJob starts a Job by a schedule:</p>
          <pre>kubectl create cronjob hello --image=busybox --schedule='H * * * *' -- echo hello</pre>
        </Empty>
      }
    />
  );
}
