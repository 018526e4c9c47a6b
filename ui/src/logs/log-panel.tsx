// A log with its tools: search, filter, follow, wrap, times, previous run, first error, download. Its state is in the address.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { save } from "../components/dialogs";
import { Icon } from "../components/icon";
import { useKeys } from "../components/keys";
import { stripAnsi } from "./ansi";
import { type Line, findFirstError, findNamed, nameLine, parseSearch } from "./lines";
import { LogView } from "./log-view";
import { MOST_FOLLOWED, type Reading } from "./reading";
import { type Source, readWhole } from "./sources";
import { nameSource } from "./use-sources";
import { formatCount } from "../job/quantities";

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

export function LogPanel({ namespace, name, chosen, sources, reading, isPrevious, params, set }: PanelProps) {
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
            {matches ? `${formatCount(found.length)} found` : "not a valid expression"}
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
        {lines.length === 0 && reading.isComplete.value && "Nothing was written · "}
        {formatCount(lines.length)} {lines.length === 1 ? "line" : "lines"}
        {reading.buffer.dropped > 0 && `, ${formatCount(reading.buffer.dropped)} older ones dropped`}
        {chosen.every((each) => each.isKept)
          ? ` · kept log of ${chosen.every((each) => each.phase === "gone") ? "a pod that is gone" : "an earlier run"}`
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

