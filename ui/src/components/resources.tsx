// Resources: what is used of what was requested, or allocated of what a node has.
import type { NodeRow, ResourceRow } from "../job/resources";
import { formatAmount, nameResource } from "../job/quantities";
import { Panel, type Tone } from "./parts";

/** Use against requests of all running pods together. */
export function ResourcesPanel({ rows, note }: { rows: ResourceRow[]; note: string }) {
  return (
    <Panel title="Resources" action={<span class="muted">{note}</span>}>
      {!rows.some(isKnown) && <p class="panel-note">Nothing is requested, and nothing was measured.</p>}
      <ul class="meters">
        {rows.filter(isKnown).map(({ resource, request, limit, used }) => (
          <Meter
            key={resource}
            name={titleOf(resource)}
            values={[[used, toneOf(used, request)]]}
            most={Math.max(request ?? 0, limit ?? 0, used ?? 0)}
            mark={request}
            isComparable={request !== null || limit !== null}
            words={[
              used !== null && `${formatAmount(resource, used)} used`,
              // Kubernetes takes a limit without a request for the request, too.
              request === null && limit === null && "nothing requested",
              request !== null && `${formatAmount(resource, request)} requested`,
              limit !== null && `limit ${formatAmount(resource, limit)}`,
            ]
              .filter(Boolean)
              .join(" · ")}
          />
        ))}
      </ul>
    </Panel>
  );
}

/** A node's allocatable resources: allocated to pods, and used. */
export function NodeResourcesPanel({ rows }: { rows: NodeRow[] }) {
  return (
    <Panel title="Resources">
      <ul class="meters">
        {rows.map(({ resource, allocatable, allocated, used }) => (
          <Meter
            key={resource}
            name={titleOf(resource)}
            values={[
              [allocated, "muted"],
              [used, "info"],
            ]}
            most={allocatable}
            mark={null}
            words={`${formatAmount(resource, allocated)} of ${formatAmount(resource, allocatable)} allocated${
              used === null ? "" : ` · ${formatAmount(resource, used)} used`
            }`}
          />
        ))}
      </ul>
    </Panel>
  );
}

const TITLES: Record<string, string> = { memory: "Memory", pods: "Pods", disk: "Disk" };
const titleOf = (resource: string): string => TITLES[nameResource(resource)] ?? nameResource(resource);

/** Whether there is anything to say of a resource: what is neither asked for nor measured is left out. */
const isKnown = ({ request, limit, used }: ResourceRow): boolean => (request ?? limit ?? used) !== null;

interface MeterProps {
  name: string;
  values: [number | null, Tone][];
  most: number;
  /** Where a line stands, such as at the request. */
  mark: number | null;
  /** Whether the amounts are a part of something: without that, a bar would say nothing. */
  isComparable?: boolean;
  words: string;
}

function Meter({ name, values, most, mark, words, isComparable = true }: MeterProps) {
  const scale = most > 0 ? 1000 / most : 0;
  return (
    <li class="meter">
      <span class="meter-name">{name}</span>
      <span class="meter-words">{words}</span>
      {isComparable && values.some(([value]) => value !== null) && (
        <svg viewBox="0 0 1000 8" preserveAspectRatio="none" role="img" aria-label={`${name}: ${words}`}>
          <rect class="rail" width="1000" height="8" />
          {values.map(([value, tone], place) => (
            <MeterBar key={tone} tone={tone} width={(value ?? 0) * scale} place={place} of={values.length} />
          ))}
          {mark !== null && mark < most && <rect class="mark" x={mark * scale - 2} width="4" height="8" />}
        </svg>
      )}
    </li>
  );
}

/** One of several values of a meter: each has its own stripe, so that none hides another. */
function MeterBar({ tone, width, place, of }: { tone: Tone; width: number; place: number; of: number }) {
  if (width <= 0) return null;
  return (
    <rect class={`fill ${tone}`} y={(8 / of) * place} width={Math.max(4, Math.min(1000, width))} height={8 / of} />
  );
}

function toneOf(used: number | null, request: number | null): Tone {
  return used !== null && request !== null && request > 0 && used > request ? "warn" : "info";
}
