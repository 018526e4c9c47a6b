// The last runs of a CronJob as bars: how long each took, and how it ended.
import { Link } from "wouter-preact";
import { formatClock, formatDuration } from "../job/times";
import { Ending, Panel, Status, type Tone } from "./parts";

export interface Run {
  uid: string;
  name: string;
  created: number;
  start: number | null;
  end: number | null;
  word: string;
  isLiving: boolean;
}

const MOST = 60;
const LISTED = 10;
const TONES: Record<string, Tone> = {
  Complete: "ok",
  Failed: "bad",
  Running: "info",
  Pending: "warn",
  Retrying: "warn",
};

/** `runs`: oldest first. */
export function RunsPanel({ runs, namespace, name, now }: { runs: Run[]; namespace: string; name: string; now: number }) {
  const shown = runs.slice(-MOST);
  const longest = Math.max(1000, ...shown.map((each) => spanOf(each, now)));
  const linkOf = (run: Run): string =>
    run.isLiving ? `/jobs/${namespace}/${run.name}` : `/history/${namespace}/${run.uid}`;
  return (
    <Panel
      title={`Last runs (${runs.length})`}
      action={
        <span class="muted">
          {shown.length > 0 && `longest ${formatDuration(longest)} · `}
          <Link href={`/jobs?${new URLSearchParams({ namespace, cronjob: name })}`}>All runs in the list</Link>
        </span>
      }
    >
      {shown.length === 0 && <p class="panel-note">It has not run yet.</p>}
      {shown.length > 0 && (
        <div class="run-bars" role="list" aria-label="Last runs">
          {shown.map((run) => (
            <Link
              key={run.uid}
              href={linkOf(run)}
              class="run-bar"
              role="listitem"
              aria-label={describe(run, now)}
              title={describe(run, now)}
            >
              <svg viewBox="0 0 10 100" preserveAspectRatio="none" aria-hidden="true">
                <rect
                  class={`fill ${TONES[run.word] ?? "muted"}`}
                  y={100 - heightOf(run, now, longest)}
                  width="10"
                  height={heightOf(run, now, longest)}
                  rx="2"
                />
              </svg>
            </Link>
          ))}
        </div>
      )}
      <ul class="run-list">
        {shown
          .slice(-LISTED)
          .reverse()
          .map((run) => (
            <li key={run.uid}>
              <Status tone={TONES[run.word] ?? "muted"}>{run.word}</Status>
              <Link href={linkOf(run)} class="mono">
                <Ending text={run.name} />
              </Link>
              <span class="muted">{formatClock(run.start ?? run.created, now)}</span>
              <span class="muted">{formatDuration(spanOf(run, now))}</span>
            </li>
          ))}
      </ul>
    </Panel>
  );
}

function spanOf(run: Run, now: number): number {
  return run.start === null ? 0 : (run.end ?? now) - run.start;
}

function heightOf(run: Run, now: number, longest: number): number {
  return Math.max(6, (spanOf(run, now) / longest) * 100);
}

function describe(run: Run, now: number): string {
  return `${run.name}: ${run.word}, started ${formatClock(run.start ?? run.created, now)}, ${formatDuration(spanOf(run, now))}`;
}
