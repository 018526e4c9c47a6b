// Logs of a Job or a pod: follow, search, previous run, download; also those of pods that are gone. What is chosen stands in the address.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Link, useLocation, useSearchParams } from "wouter-preact";
import { useCollection } from "../api/hooks";
import { PODS } from "../api/resources";
import { save } from "../components/dialogs";
import { Icon } from "../components/icon";
import { useKeys } from "../components/keys";
import { Empty, Problem } from "../components/parts";
import type { Pod } from "../job/objects";
import { stripAnsi } from "../logs/ansi";
import { type Line, findFirstError, findNamed, nameLine, parseSearch } from "../logs/lines";
import { LogView } from "../logs/log-view";
import { MOST_FOLLOWED, type Reading, read } from "../logs/reading";
import { type Source, listKept, readWhole, sourcesOf } from "../logs/sources";

const MOST_MERGED = 20;
const MOST_OPTIONS = 500;

interface Place {
  namespace: string;
  kind: "job" | "pod";
  name: string;
}

export function LogsPage(at: Place) {
  return <Logs key={`${at.namespace}/${at.kind}/${at.name}`} {...at} />;
}

function Logs({ namespace, kind, name }: Place) {
  const [params, setParams] = useSearchParams();
  const [, go] = useLocation();
  const set = (key: string, value: string): void =>
    setParams(
      (before) => {
        if (value) before.set(key, value);
        else before.delete(key);
        return before;
      },
      { replace: true },
    );
  const { sources, isKnown, problem } = useSources({ namespace, kind, name }, params.get("uid") ?? "");
  const chosen = choose(sources, params.get("source") ?? "", params.get("container") ?? "", params.get("index"));
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

/** Sources of living pods, and kept ones of pods that are gone; asked again when a pod goes. */
function useSources(
  { namespace, kind, name }: Place,
  uid: string,
): { sources: Source[]; isKnown: boolean; problem: string } {
  const selection =
    kind === "job"
      ? { labelSelector: `batch.kubernetes.io/job-name=${name}` }
      : { fieldSelector: `metadata.name=${name}` };
  const collection = useCollection<Pod>(PODS, { namespace, ...selection });
  const pods = [...collection.items.value.values()].filter((pod) => !uid || pod.metadata.uid === uid);
  const kept = useSignal<Source[]>([]);
  const asked = useSignal(false);
  const problem = useSignal("");
  const isListed = collection.state.value !== "loading";
  const uids = pods
    .map((pod) => pod.metadata.uid)
    .sort()
    .join();
  useEffect(() => {
    if (!isListed) return undefined;
    const stopping = new AbortController();
    const query = kind === "job" ? { job: name } : { pod: name };
    listKept(namespace, query as Record<string, string>, sourcesOf(pods), stopping.signal)
      .then((found) => (kept.value = uid ? found.filter((each) => each.uid === uid) : found))
      .catch((error: unknown) => {
        if (!stopping.signal.aborted) problem.value = error instanceof Error ? error.message : String(error);
      })
      .finally(() => (asked.value = true));
    return () => stopping.abort();
  }, [namespace, kind, name, uids, isListed]);
  const known = new Set(pods.map((pod) => pod.metadata.uid));
  const sources = [...sourcesOf(pods), ...kept.value.filter((each) => !known.has(each.uid))];
  return { sources, isKnown: asked.value, problem: problem.value };
}

/** The sources to read: the chosen one, all, those of an index, or the newest pod's. */
function choose(sources: Source[], key: string, container: string, index: string | null): Source[] {
  if (key === "all") return sources.slice(0, MOST_MERGED);
  const matching = sources.filter(
    (each) =>
      (!key || each.key === key) &&
      (!container || each.container === container) &&
      (index === null || `${each.index}` === index),
  );
  const newest = matching[0];
  if (key || !newest) return matching.slice(0, 1);
  const ofPod = matching.filter((each) => each.uid === newest.uid);
  return ofPod.slice(0, MOST_MERGED);
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

interface PanelProps {
  namespace: string;
  name: string;
  chosen: Source[];
  sources: Source[];
  reading: Reading;
  isPrevious: boolean;
  params: URLSearchParams;
  set: (key: string, value: string) => void;
}

function LogPanel({ namespace, name, chosen, sources, reading, isPrevious, params, set }: PanelProps) {
  const search = params.get("q") ?? "";
  const isFiltered = params.get("only") === "1";
  const matches = useMemo(() => parseSearch(search), [search]);
  const isFollowing = useSignal(!params.get("at"));
  const target = useSignal<{ place: number } | null>(null);
  const version = reading.version.value;
  const all = reading.buffer.all;
  const lines = useMemo(
    () => (isFiltered && matches ? all.filter((each) => matches(each.text)) : [...all]),
    [version, all, isFiltered, matches],
  );
  const found = useMemo(
    () => (matches ? lines.flatMap((each, place) => (matches(each.text) ? [place] : [])) : []),
    [lines, matches],
  );
  const show = (place: number): void => {
    isFollowing.value = false;
    target.value = { place };
  };
  useLinkedLine(params.get("at"), lines, reading.isComplete.value, show);
  const step = (by: number): void => {
    const from = target.value?.place ?? (by > 0 ? -1 : lines.length);
    const next =
      by > 0
        ? (found.find((place) => place > from) ?? found[0])
        : (found.findLast((place) => place < from) ?? found.at(-1));
    if (next !== undefined) show(next);
  };
  useKeys({ n: () => step(1), N: () => step(-1), e: () => show(findFirstError(lines)) });
  const link = (line: Line): void => {
    set("at", nameLine(reading.buffer.all, line));
    show(lines.indexOf(line));
  };
  const follow = (on: boolean): void => {
    isFollowing.value = on;
    if (on) target.value = null;
  };
  const live = chosen.filter((each) => each.isLive);
  return (
    <>
      <div class="log-tools">
        <label class="search">
          <Icon name="search" />
          <span class="hidden">Search the log</span>
          <input
            type="search"
            placeholder="Text or /regex/"
            value={search}
            onInput={(event) => set("q", event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1)}
          />
        </label>
        {search && (
          <span class="muted" role="status" data-testid="found">
            {matches ? `${found.length.toLocaleString("en")} found` : "not a valid expression"}
          </span>
        )}
        <Toggle
          label="Only matches"
          isOn={isFiltered}
          onToggle={() => set("only", isFiltered ? "" : "1")}
          isHidden={!search}
        />
        <Toggle
          label="Follow"
          letter="f"
          isOn={isFollowing.value}
          onToggle={() => follow(!isFollowing.value)}
          isFollow
        />
        <Toggle
          label="Wrap"
          letter="w"
          isOn={params.has("wrap")}
          onToggle={() => set("wrap", params.has("wrap") ? "" : "1")}
        />
        <Toggle
          label="Times"
          letter="t"
          isOn={params.has("times")}
          onToggle={() => set("times", params.has("times") ? "" : "1")}
        />
        <Toggle
          label="Previous run"
          letter="p"
          isOn={isPrevious}
          onToggle={() => set("previous", isPrevious ? "" : "1")}
        />
        <button
          type="button"
          aria-keyshortcuts="e"
          onClick={() => show(findFirstError(lines))}
          disabled={findFirstError(lines) < 0}
        >
          First error<kbd aria-hidden="true">e</kbd>
        </button>
        <button type="button" onClick={() => void download(namespace, name, chosen, isPrevious)}>
          Download
        </button>
      </div>
      {live.length > MOST_FOLLOWED && (
        <p class="note">
          {MOST_FOLLOWED} of {live.length} running containers are followed; of the others you see what they had written.
          Choose one to follow it.
        </p>
      )}
      <LogView
        lines={lines}
        nameOf={chosen.length > 1 ? (key) => nameSource(key, chosen, sources) : null}
        isWrapped={params.has("wrap")}
        hasTimes={params.has("times")}
        isFollowing={isFollowing.value}
        onFollow={follow}
        matches={matches}
        target={target.value}
        onLink={link}
      />
      <p class="log-foot muted" role="status">
        {lines.length.toLocaleString("en")} {lines.length === 1 ? "line" : "lines"}
        {reading.buffer.dropped > 0 && `, ${reading.buffer.dropped.toLocaleString("en")} older ones dropped`}
        {chosen.every((each) => each.isKept)
          ? " · kept log of a pod that is gone"
          : live.length && !isPrevious
            ? " · live"
            : " · ended"}
      </p>
    </>
  );
}

/** Show the line that the address names, as soon as it is there. */
function useLinkedLine(
  name: string | null,
  lines: readonly Line[],
  isComplete: boolean,
  show: (place: number) => void,
): void {
  const isShown = useSignal(false);
  useEffect(() => {
    if (!name || isShown.value) return;
    const place = findNamed(lines, name, isComplete);
    if (place < 0) return;
    isShown.value = true;
    show(place);
  }, [name, lines, isComplete]);
}

interface ToggleProps {
  label: string;
  letter?: string;
  isOn: boolean;
  onToggle: () => void;
  isHidden?: boolean;
  isFollow?: boolean;
}

function Toggle({ label, letter, isOn, onToggle, isHidden, isFollow }: ToggleProps) {
  if (isHidden) return null;
  return (
    <button
      type="button"
      class="toggle"
      aria-pressed={isOn}
      aria-keyshortcuts={letter}
      data-follow={isFollow || undefined}
      onClick={onToggle}
    >
      {label}
      {letter && <kbd aria-hidden="true">{letter}</kbd>}
    </button>
  );
}

async function download(namespace: string, name: string, sources: Source[], isPrevious: boolean): Promise<void> {
  const options: Record<string, string> = { timestamps: "false", ...(isPrevious ? { previous: "true" } : {}) };
  const texts: string[] = [];
  for (const each of sources) {
    const text = await readWhole(namespace, each, options).catch((error: unknown) => `(${String(error)})\n`);
    texts.push(sources.length > 1 ? `==> ${each.pod} ${each.container} <==\n${text}\n` : text);
  }
  save(
    `${name}.log`,
    new Blob(
      texts.map((text) => text.split("\n").map(stripAnsi).join("\n")),
      { type: "text/plain" },
    ),
  );
}

function nameSource(key: string, chosen: Source[], sources: Source[]): { label: string; place: number } {
  const place = chosen.findIndex((each) => each.key === key);
  const source = chosen[place];
  return { label: source ? labelOf(source, sources) : "", place: Math.max(0, place) };
}

/** The shortest name that tells a source from the others. */
function labelOf(source: Source, sources: Source[]): string {
  const hasContainers = sources.some((each) => each.container !== source.container);
  const hasPods = sources.some((each) => each.pod !== source.pod);
  const pod = source.index === null ? source.pod : `index ${source.index} (${source.pod})`;
  return [hasPods && pod, hasContainers && source.container].filter(Boolean).join(" · ") || source.pod;
}
