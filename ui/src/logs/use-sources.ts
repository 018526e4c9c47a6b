// Which logs there are to choose from, live; which of them the address chooses; and what each is called.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useCollection } from "../api/hooks";
import { PODS } from "../api/resources";
import type { Pod } from "../api/types";
import { type Source, listKept, sourcesOf } from "./sources";

/** Logs that are shown together at most. */
export const MOST_MERGED = 20;

/** What a page shows the logs of. */
export interface Place {
  namespace: string;
  kind: "job" | "pod";
  name: string;
}

/** Sources of living pods, and kept ones of pods that are gone; asked again when a pod goes. */
export function useSources(
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
export function choose(sources: Source[], key: string, container: string, index: string | null): Source[] {
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

export function nameSource(key: string, chosen: Source[], sources: Source[]): { label: string; place: number } {
  const place = chosen.findIndex((each) => each.key === key);
  const source = chosen[place];
  return { label: source ? labelOf(source, sources) : "", place: Math.max(0, place) };
}

/** The shortest name that tells a source from the others. */
export function labelOf(source: Source, sources: Source[]): string {
  const hasContainers = sources.some((each) => each.container !== source.container);
  const hasPods = sources.some((each) => each.pod !== source.pod);
  const pod = source.index === null ? source.pod : `index ${source.index} (${source.pod})`;
  return [hasPods && pod, hasContainers && source.container].filter(Boolean).join(" · ") || source.pod;
}
