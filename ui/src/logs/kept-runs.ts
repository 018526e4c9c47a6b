// Runs of containers whose logs are kept: of runs that no record has, they are all that is known.
import { useMemo } from "preact/hooks";
import { usePolled } from "../api/polling";
import { type KeptRun, countRestarts, hasMoreRuns } from "../job/attempts";
import type { Attempt } from "../job/objects";
import { type KeptLog, pathOfKept } from "./sources";

const AGAIN_MS = 60_000;

/** Kept runs of a Job's pods or of one pod; asked for only if containers were restarted more than once, and again at each restart. */
export function useKeptRuns(namespace: string, query: Record<string, string>, attempts: Attempt[]): KeptRun[] {
  const path = hasMoreRuns(attempts) ? pathOfKept(namespace, query) : null;
  return useRuns(usePolled<{ items: KeptLog[] | null }>(path, AGAIN_MS, countRestarts(attempts))?.items);
}

/** Kept runs of the pods of a record, which does not count restarts; null asks for none. */
export function useRecordedRuns(namespace: string, job: string | null): KeptRun[] {
  const path = job === null ? null : pathOfKept(namespace, { job });
  return useRuns(usePolled<{ items: KeptLog[] | null }>(path, AGAIN_MS)?.items);
}

function useRuns(logs: KeptLog[] | null | undefined): KeptRun[] {
  return useMemo(
    () =>
      (logs ?? []).map(({ metadata, container, attempt, startedAt }) => ({
        podUID: metadata.uid,
        container,
        run: attempt,
        startedAt,
      })),
    [logs],
  );
}
