// Timelines of attempts on one axis of time: queued, pulling, starting, running, done.
import { type Phase, type PhaseName, spanTimelines } from "../job/timeline";
import { formatClock, formatDuration } from "../job/times";
import { Ending } from "./parts";

const NAMES: PhaseName[] = ["queued", "pulling", "starting", "running", "backoff"];
const NAMED: Partial<Record<PhaseName, string>> = { backoff: "back-off" };
const HEIGHT = 10;
const WIDTH = 1000;
/** Of a phase that took no time: it is seen, also at the right edge. */
const LEAST_WIDTH = 6;

export interface TimelineRow {
  key: string;
  label: string;
  phases: Phase[];
}

export function Timelines({ rows, now }: { rows: TimelineRow[]; now: number }) {
  const [from, to] = spanTimelines(
    rows.map((each) => each.phases),
    now,
  );
  const shown = rows.flatMap((row) => row.phases.filter((each) => each.name === "running" || (each.to ?? now) > each.from));
  const used = NAMES.filter((name) => shown.some((each) => each.name === name && !each.hasFailed));
  const hasFailed = shown.some((each) => each.hasFailed);
  return (
    <div class="timelines">
      <ul class="swatches" aria-label="Phases">
        {used.map((name) => (
          <li key={name}>
            <i class={`swatch phase-${name}`} aria-hidden="true" />
            {NAMED[name] ?? name}
          </li>
        ))}
        {hasFailed && (
          <li>
            <i class="swatch failed" aria-hidden="true" />
            ran, and failed
          </li>
        )}
      </ul>
      {rows.map((row) => (
        <div class="timeline" key={row.key}>
          <span class="timeline-label mono">
            <Ending text={row.label} />
          </span>
          <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={describeRow(row, now)}>
            <rect class="rail" width={WIDTH} height={HEIGHT} />
            {row.phases.map((each) => (
              <PhaseBar key={each.from + each.name} phase={each} from={from} to={to} now={now} />
            ))}
          </svg>
          <span class="timeline-total">{totalOf(row.phases, now)}</span>
        </div>
      ))}
      <div class="timeline-axis" aria-hidden="true">
        <span>
          <i>{formatClock(from, now)}</i>
          <i>{formatClock(to, now)}</i>
        </span>
      </div>
    </div>
  );
}

interface BarProps {
  phase: Phase;
  from: number;
  to: number;
  now: number;
}

function PhaseBar({ phase, from, to, now }: BarProps) {
  if (phase.name === "done") return null;
  const scale = WIDTH / (to - from);
  const width = Math.max(LEAST_WIDTH, ((phase.to ?? now) - phase.from) * scale);
  const start = Math.min((phase.from - from) * scale, WIDTH - LEAST_WIDTH);
  const state = phase.hasFailed ? " failed" : "";
  return (
    <rect class={`phase-${phase.name}${state}`} x={start} width={width} height={HEIGHT}>
      <title>{describePhase(phase, now)}</title>
    </rect>
  );
}

function describeRow(row: TimelineRow, now: number): string {
  const phases = row.phases.filter((each) => each.name !== "done").map((each) => describePhase(each, now));
  return `${row.label}: ${phases.join(", ")}`;
}

function describePhase(phase: Phase, now: number): string {
  if (phase.hasFailed && phase.to === phase.from) return "a run that failed";
  return `${NAMED[phase.name] ?? phase.name} ${formatDuration((phase.to ?? now) - phase.from)}${phase.to === null ? " so far" : ""}`;
}

function totalOf(phases: Phase[], now: number): string {
  const [first, last] = [phases[0], phases.at(-1)];
  return first && last ? formatDuration((last.to ?? now) - first.from) : "";
}
