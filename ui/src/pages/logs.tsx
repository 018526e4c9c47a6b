// Logs of a Job or a pod: follow, search, previous run, download; also those of pods that are gone. What is chosen stands in the address.
import { useEffect, useMemo } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { useKeys } from "../components/keys";
import { Chip } from "../components/filters";
import { useAddress } from "../components/listing";
import { Empty, Problem } from "../components/parts";
import { LogPanel } from "../logs/log-panel";
import { type Reading, read } from "../logs/reading";
import { type Source, ofRun } from "../logs/sources";
import { MOST_MERGED, type Place, choose, labelOf, useSources } from "../logs/use-sources";

const MOST_OPTIONS = 500;

export function LogsPage(at: Place) {
  return <Logs key={`${at.namespace}/${at.kind}/${at.name}`} {...at} />;
}

function Logs({ namespace, kind, name }: Place) {
  const [params, set] = useAddress();
  const [, go] = useLocation();
  const { sources, isKnown, problem } = useSources({ namespace, kind, name }, params.get("uid") ?? "");
  const newest = choose(sources, params.get("source") ?? "", params.get("container") ?? "", params.get("index"));
  const run = params.get("run");
  const chosen = run === null ? newest : newest.map((each) => ofRun(each, Number(run)));
  const isPrevious = params.get("previous") === "1";
  const reading = useReading(namespace, chosen, isPrevious);
  const back = kind === "job" ? `/jobs/${namespace}/${name}` : `/pods/${namespace}/${name}`;
  useKeys({
    f: () => document.querySelector<HTMLElement>("[data-follow]")?.click(),
    w: () => set("wrap", params.get("wrap") ? "" : "1"),
    t: () => set("times", params.get("times") ? "" : "1"),
    p: () => set("previous", isPrevious ? "" : "1"),
    b: () => go(back),
  });
  return (
    <div class="logs-page">
      <div class="toolbar">
        <h1>
          <span class="muted">Log of</span> <Link href={back}>{name}</Link>
        </h1>
        {run !== null && <Chip name="Run" value={`${Number(run) + 1}`} onRemove={() => set("run", "")} />}
        <SourceChoice sources={sources} value={params.get("source") ?? ""} onChange={(value) => set("source", value)} />
      </div>
      <Problem>{problem || reading.problem.value}</Problem>
      {sources.length > 0 ? (
        <LogPanel {...{ namespace, name, chosen, sources, reading, isPrevious, params, set }} />
      ) : (
        <Empty title={isKnown ? "No log yet" : "Loading…"}>
          {isKnown && (
            <p>
              It appears here as soon as a container has started. Logs of pods that are gone are kept for a limited
              time.
            </p>
          )}
        </Empty>
      )}
    </div>
  );
}

/** Begins anew when other sources are chosen; a pod that ends does not begin it anew, as its stream ends by itself. */
function useReading(namespace: string, chosen: Source[], isPrevious: boolean): Reading {
  const key = `${chosen.map((each) => each.key + (each.isKept ? "/kept" : "")).join()} ${isPrevious}`;
  const reading = useMemo(() => read(namespace, chosen, isPrevious), [namespace, key]);
  useEffect(() => () => reading.stop(), [reading]);
  return reading;
}

function SourceChoice({
  sources,
  value,
  onChange,
}: {
  sources: Source[];
  value: string;
  onChange: (value: string) => void;
}) {
  if (sources.length < 2) return null;
  return (
    <label>
      <span class="hidden">Pod and container</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">Newest pod</option>
        <option value="all">{sources.length > MOST_MERGED ? `Newest ${MOST_MERGED} together` : "All together"}</option>
        {sources.slice(0, MOST_OPTIONS).map((each) => (
          <option key={each.key} value={each.key}>
            {labelOf(each, sources)} · {each.phase}
          </option>
        ))}
      </select>
    </label>
  );
}

