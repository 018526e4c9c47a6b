// A chart of ended Jobs by minute: completed below, failed above. The numbers are also in its label, for those who cannot see it.
import { formatClock } from "../job/times";
import type { Throughput } from "../job/load";

const WIDTH = 600;
const HEIGHT = 120;
const GAP = 2;

export function ThroughputChart({ counts }: { counts: readonly Throughput[] }) {
  const most = Math.max(1, ...counts.map((each) => each.completed + each.failed));
  const step = WIDTH / counts.length;
  const words = `Most in one minute: ${most === 1 && !counts.some((each) => each.completed + each.failed) ? 0 : most}`;
  return (
    <figure class="throughput">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={words}>
        <line x1="0" x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} class="rail" />
        {counts.map(({ at, completed, failed }, place) => {
          const lower = (completed / most) * HEIGHT;
          const upper = (failed / most) * HEIGHT;
          return (
            <g key={at}>
              <title>{`${formatClock(at, Date.now())}: ${completed} completed, ${failed} failed`}</title>
              <rect class="reach" x={place * step} width={step} height={HEIGHT} />
              {completed > 0 && <rect class="fill ok" x={place * step} y={HEIGHT - lower} width={step - GAP} height={lower} />}
              {failed > 0 && <rect class="fill bad" x={place * step} y={HEIGHT - lower - upper} width={step - GAP} height={upper} />}
            </g>
          );
        })}
      </svg>
      <figcaption class="muted">
        <span>{counts.length} min ago</span>
        <span>{words}</span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}
