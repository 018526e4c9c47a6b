// The logs that a page can show: containers of living pods, and kept logs of pods that are gone.
import { request, send } from "../api/client";
import { PODS, pathOf } from "../api/resources";
import { attemptOf, isEnded } from "../job/attempts";
import { indexOf } from "../job/indexes";
import type { Pod } from "../api/types";

export const KEPT = "/apis/logs.jobplane.dev/v1";
export const TAIL_LINES = 20_000;
const KEPT_LISTED = 2_000;

/** One run of one container. `isLive`: it may still write. */
export interface Source {
  key: string;
  pod: string;
  uid: string;
  container: string;
  attempt: number | null;
  index: number | null;
  isLive: boolean;
  isKept: boolean;
  startedAt: string;
  /** State of its pod, as far as it is known. */
  phase: string;
}

export interface KeptLog {
  metadata: { name: string; uid: string };
  container: string;
  attempt: number;
  startedAt: string;
  endedAt?: string;
}

/** A source for each container of pods that have started one, newest pod first. */
export function sourcesOf(pods: Iterable<Pod>): Source[] {
  const sources: Source[] = [];
  for (const pod of pods) {
    const { startedAt, phase } = attemptOf(pod);
    for (const each of [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])]) {
      const hasRun = each.state?.running ?? each.state?.terminated ?? each.lastState?.terminated;
      if (!hasRun) continue;
      sources.push({
        key: `${pod.metadata.uid}/${each.name}`,
        pod: pod.metadata.name,
        uid: pod.metadata.uid,
        container: each.name,
        attempt: null,
        index: indexOf(pod),
        isLive: !isEnded(pod),
        isKept: false,
        startedAt: startedAt ?? pod.metadata.creationTimestamp,
        phase,
      });
    }
  }
  return sources.sort(byStart);
}

/** Kept logs of a Job's pods or of one pod, without those of living pods: the newest run of each container. */
export async function listKept(
  namespace: string,
  query: Record<string, string>,
  living: Source[],
  signal: AbortSignal,
): Promise<Source[]> {
  const known = new Set(living.map((each) => each.uid));
  const newest = new Map<string, KeptLog>();
  for (const each of await readKept(namespace, query, signal)) {
    const key = `${each.metadata.uid}/${each.container}`;
    if (!known.has(each.metadata.uid) && (newest.get(key)?.attempt ?? -1) < each.attempt) newest.set(key, each);
  }
  return [...newest].map(([key, each]) => keptSource(key, each)).sort(byStart);
}

/** The path of a log. Times are always asked for: lines are sorted, resumed and linked to by them. */
export function pathOfLog(namespace: string, source: Source, options: Record<string, string>): string {
  const query = { container: source.container, timestamps: "true", ...options };
  if (!source.isKept) return `${pathOf(PODS, namespace, source.pod)}/log?${new URLSearchParams(query)}`;
  const kept = {
    uid: source.uid,
    ...(source.attempt === null || options.previous ? {} : { attempt: `${source.attempt}` }),
  };
  return `${KEPT}/namespaces/${encodeURIComponent(namespace)}/logs/${source.pod}?${new URLSearchParams({ ...query, ...kept })}`;
}

/** The whole text of a log, as far as it is kept. */
export async function readWhole(namespace: string, source: Source, options: Record<string, string>): Promise<string> {
  return await (await send(pathOfLog(namespace, source, options), { accept: "*/*" })).text();
}

/** The path of the list of kept logs of a Job's pods or of one pod. */
export function pathOfKept(namespace: string, query: Record<string, string>): string {
  const all = new URLSearchParams({ ...query, limit: `${KEPT_LISTED}` });
  return `${KEPT}/namespaces/${encodeURIComponent(namespace)}/logs?${all}`;
}

/** One run, from 0, of a source's container, as it was kept; also of a pod that lives. */
export function ofRun(source: Source, run: number): Source {
  return { ...source, key: `${source.key}/${run}`, attempt: run, isLive: false, isKept: true };
}

async function readKept(namespace: string, query: Record<string, string>, signal: AbortSignal): Promise<KeptLog[]> {
  return (await request<{ items: KeptLog[] | null }>(pathOfKept(namespace, query), { signal })).items ?? [];
}

function keptSource(key: string, log: KeptLog): Source {
  const { name: pod, uid } = log.metadata;
  const { container, attempt, startedAt } = log;
  return { key, pod, uid, container, attempt, index: null, isLive: false, isKept: true, startedAt, phase: "gone" };
}

function byStart(a: Source, b: Source): number {
  return a.startedAt < b.startedAt ? 1 : a.startedAt > b.startedAt ? -1 : a.key < b.key ? -1 : 1;
}
