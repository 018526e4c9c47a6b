/**
 * Load of the cluster: what the pods that have not ended request, by node and by queue, and how long pods wait for a node.
 *
 * Called by the lists of nodes and queues and by the cluster page. Amounts are numbers in base units: CPUs and bytes.
 */

import type { Job, KubernetesObject, Node, Pod } from "../api/types";
import { parseQuantity } from "./quantities";
import { type Amounts, sumRequests } from "./resources";

/** Selects pods that have not ended. */
export const ACTIVE = "status.phase!=Succeeded,status.phase!=Failed";

/** What is kept of a pod that has not ended: a cluster may have 100,000 of them. */
export interface ActivePod extends KubernetesObject {
  readonly node: string;
  readonly requests: Amounts;
  readonly createdAt: number;
}

/** Cut a pod, as the server sends it, to what counts here. */
export function takeActive(object: ActivePod): ActivePod {
  const { metadata, spec } = object as unknown as Pod;
  const { uid, name, namespace = "", resourceVersion, creationTimestamp } = metadata;
  return {
    metadata: { uid, name, namespace, resourceVersion, creationTimestamp },
    node: spec.nodeName ?? "",
    requests: sumRequests(spec as Parameters<typeof sumRequests>[0]),
    createdAt: Date.parse(creationTimestamp),
  };
}

export interface NodeLoad {
  pods: number;
  requests: Amounts;
}

/** Pods and their requests by the node that they are bound to. */
export function loadOfNodes(pods: Iterable<ActivePod>): Map<string, NodeLoad> {
  return loadBy(pods, (pod) => pod.node);
}

function loadBy(pods: Iterable<ActivePod>, keyOf: (pod: ActivePod) => string): Map<string, NodeLoad> {
  const loads = new Map<string, NodeLoad>();
  for (const pod of pods) {
    const key = keyOf(pod);
    if (!key) continue;
    const load = loads.get(key) ?? { pods: 0, requests: {} };
    loads.set(key, load);
    load.pods += 1;
    for (const [name, amount] of Object.entries(pod.requests)) load.requests[name] = (load.requests[name] ?? 0) + amount;
  }
  return loads;
}

export interface Capacity {
  readonly resource: string;
  readonly allocatable: number;
  readonly requested: number;
}

const HIDDEN = /^(pods|ephemeral-storage|hugepages-.*)$/;

/** Allocatable and requested amounts of all nodes together: CPU and memory first, then devices by name. */
export function sumCapacity(nodes: Iterable<Node>, pods: Iterable<ActivePod>): Capacity[] {
  const allocatable: Amounts = { cpu: 0, memory: 0 };
  const requested: Amounts = {};
  for (const node of nodes) {
    for (const [name, text] of Object.entries(node.status?.allocatable ?? {})) {
      if (!HIDDEN.test(name)) allocatable[name] = (allocatable[name] ?? 0) + (parseQuantity(text) || 0);
    }
  }
  for (const { requests } of loadOfNodes(pods).values()) {
    for (const [name, amount] of Object.entries(requests)) requested[name] = (requested[name] ?? 0) + amount;
  }
  const names = Object.keys(allocatable).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  return names.map((resource) => ({ resource, allocatable: allocatable[resource] ?? 0, requested: requested[resource] ?? 0 }));
}

const rank = (name: string): number => ({ cpu: 0, memory: 1 })[name] ?? 2;

export interface Waiting {
  readonly namespace: string;
  readonly waiting: number;
  readonly running: number;
  /** Milliseconds that the pods wait: the longest, and the median. */
  readonly longest: number;
  readonly median: number;
}

/** By namespace, how many pods wait for a node and for how long; the longest queue first. */
export function measureWaiting(pods: Iterable<ActivePod>, now: number): Waiting[] {
  const ages = new Map<string, number[]>();
  const bound = new Map<string, number>();
  for (const pod of pods) {
    const namespace = pod.metadata.namespace ?? "";
    if (!ages.has(namespace)) ages.set(namespace, []);
    if (pod.node) bound.set(namespace, (bound.get(namespace) ?? 0) + 1);
    else ages.get(namespace)?.push(Math.max(0, now - pod.createdAt));
  }
  const found = [...ages].map(([namespace, waits]) => {
    waits.sort((a, b) => a - b);
    const median = waits[Math.floor(waits.length / 2)] ?? 0;
    return { namespace, waiting: waits.length, running: bound.get(namespace) ?? 0, longest: waits.at(-1) ?? 0, median };
  });
  return found.sort((a, b) => b.waiting - a.waiting || b.running - a.running || (a.namespace < b.namespace ? -1 : 1));
}

export interface Throughput {
  /** The start of the minute. */
  readonly at: number;
  completed: number;
  failed: number;
}

const MINUTE = 60_000;

/** How many Jobs ended in each of the last `minutes` minutes, oldest first; the last minute has not ended yet. */
export function countEnded(jobs: Iterable<EndedJob>, now: number, minutes: number): Throughput[] {
  const last = Math.floor(now / MINUTE) * MINUTE;
  const counts = Array.from({ length: minutes }, (_, place) => ({ at: last - (minutes - 1 - place) * MINUTE, completed: 0, failed: 0 }));
  for (const { endedAt, isFailed } of jobs) {
    const minute = counts[minutes - 1 - Math.floor((last + MINUTE - 1 - endedAt) / MINUTE)];
    if (minute && endedAt < last + MINUTE) minute[isFailed ? "failed" : "completed"] += 1;
  }
  return counts;
}

export interface EndedJob {
  readonly endedAt: number;
  readonly isFailed: boolean;
}

/** When and how a Job ended; null while it has not. */
export function endOf(job: Job): EndedJob | null {
  const ended = job.status?.conditions?.find((each) => (each.type === "Complete" || each.type === "Failed") && each.status === "True");
  const at = Date.parse(job.status?.completionTime ?? ended?.lastTransitionTime ?? "");
  return ended && at ? { endedAt: at, isFailed: ended.type === "Failed" } : null;
}
