// The history: records of Jobs that ended or were deleted, newest end first, with filters that are kept in the address.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Link } from "wouter-preact";
import { HISTORY } from "../actions/verbs";
import { request } from "../api/client";
import { now } from "../api/hooks";
import { Moment } from "../components/detail";
import { Icon } from "../components/icon";
import { useAddress } from "../components/listing";
import { Empty, Ending, Problem, Status, type Tone } from "../components/parts";
import type { JobRecord } from "../job/objects";
import { formatDistance, formatDuration, parseTime } from "../job/times";

const PAGE = "100";
const AGAIN_MS = 4_000;
export const RESULTS: Record<string, Tone> = { Complete: "ok", Failed: "bad", Deleted: "muted", Running: "info" };

interface RecordList {
  metadata?: { continue?: string };
  items: JobRecord[] | null;
}

export function HistoryPage() {
  const [params, set] = useAddress();
  const search = params.get("q") ?? "";
  const result = params.get("result") ?? "";
  const namespace = params.get("namespace") ?? "";
  const { records, hasMore, isLoading, problem, more } = useRecords(namespace, search, result);
  return (
    <div class="detail-page">
      <div class="toolbar">
        <h1>
          History{" "}
          <span class="count" aria-live="polite">
            {records.length}
            {hasMore ? "+" : ""}
          </span>
        </h1>
        <label class="search">
          <Icon name="search" />
          <span class="hidden">Search History</span>
          <input
            type="search"
            placeholder="Name of the Job…"
            value={search}
            onInput={(event) => set("q", event.currentTarget.value)}
          />
        </label>
        <label>
          <span class="hidden">Result</span>
          <select value={result} onChange={(event) => set("result", event.currentTarget.value)}>
            <option value="">All results</option>
            {["Complete", "Failed", "Deleted"].map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        {namespace && (
          <button
            type="button"
            class="chip"
            onClick={() => set("namespace", "")}
            aria-label={`Namespace ${namespace}: show all`}
          >
            {namespace} ✕
          </button>
        )}
      </div>
      <Problem>{problem}</Problem>
      {records.length === 0 && !problem && (
        <Empty title={isLoading ? "Loading…" : "No records"}>
          {!isLoading && <p>Jobs that end or are deleted leave their attempts, events and logs here.</p>}
        </Empty>
      )}
      {records.length > 0 && <RecordsTable records={records} />}
      {hasMore && (
        <button type="button" class="show-more" onClick={more}>
          Show older
        </button>
      )}
    </div>
  );
}

function useRecords(namespace: string, search: string, result: string) {
  const records = useSignal<JobRecord[]>([]);
  const next = useSignal("");
  const isLoading = useSignal(true);
  const problem = useSignal("");
  const path = `${HISTORY}${namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ""}/jobs`;
  const load = async (from: string, signal?: AbortSignal): Promise<void> => {
    const query = { limit: PAGE, ...(result && { result }), ...(from && { continue: from }) };
    const ask = (more: Record<string, string>): Promise<RecordList> =>
      request<RecordList>(`${path}?${new URLSearchParams({ ...query, ...more })}`, signal ? { signal } : {});
    try {
      const page = await ask({});
      // The API finds whole names, however old; parts of names are looked for in what is loaded.
      const exact = search && !from ? ((await ask({ name: search })).items ?? []) : [];
      if (signal?.aborted) return;
      records.value = unite(from ? records.value : exact, page.items ?? []);
      next.value = page.metadata?.continue ?? "";
      problem.value = "";
    } catch (error) {
      if (!signal?.aborted) problem.value = error instanceof Error ? error.message : String(error);
    }
    isLoading.value = false;
  };
  useEffect(() => {
    const stopping = new AbortController();
    const { signal } = stopping;
    const soon = setTimeout(() => void load("", signal), search ? 200 : 0);
    // Records cannot be watched: the newest are asked for again, unless older ones have been opened.
    const again = setInterval(() => {
      if (!document.hidden && records.value.length <= Number(PAGE)) void load("", signal);
    }, AGAIN_MS);
    return () => {
      clearTimeout(soon);
      clearInterval(again);
      stopping.abort();
    };
  }, [path, search, result]);
  const more = (): void => void load(next.value);
  const found = records.value.filter((each) => each.metadata.name.includes(search));
  return { records: found, hasMore: Boolean(next.value), isLoading: isLoading.value, problem: problem.value, more };
}

function unite(before: JobRecord[], more: JobRecord[]): JobRecord[] {
  const known = new Set(before.map((each) => each.metadata.uid));
  return [...before, ...more.filter((each) => !known.has(each.metadata.uid))];
}

function RecordsTable({ records }: { records: JobRecord[] }) {
  return (
    <div class="wide boxed" tabIndex={0} role="region" aria-label="Table of records">
      <table class="data" aria-label="Records">
        <thead>
          <tr>
            <th>Result</th>
            <th>Job</th>
            <th class="minor">Namespace</th>
            <th>Ended</th>
            <th class="number minor">Took</th>
            <th class="number minor">Attempts</th>
            <th class="minor">Still there</th>
          </tr>
        </thead>
        <tbody>
          {records.map((each) => (
            <RecordRow key={each.metadata.uid} record={each} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function RecordRow({ record }: { record: JobRecord }) {
  const { name, namespace, uid } = record.metadata;
  const [start, end] = [parseTime(record.startTime), parseTime(record.endTime ?? record.deletionTime)];
  const attempts = (record.attempts?.length ?? 0) + (record.attemptsOmitted ?? 0);
  return (
    <tr>
      <td>
        <Status tone={RESULTS[record.result] ?? "muted"}>{record.result}</Status>
      </td>
      <td class="name">
        <Link href={`/history/${namespace}/${uid}`}>
          <Ending text={name} />
        </Link>
      </td>
      <td class="minor">{namespace}</td>
      <td>
        <Moment at={end}>{end === null ? "" : formatDistance(end, now.value)}</Moment>
      </td>
      <td class="number minor">{start === null || end === null ? "–" : formatDuration(end - start)}</td>
      <td class="number minor">{attempts}</td>
      <td class="minor">
        {record.deletionTime ? (
          <span class="muted">deleted</span>
        ) : (
          <Link href={`/jobs/${namespace}/${name}`}>yes</Link>
        )}
      </td>
    </tr>
  );
}
