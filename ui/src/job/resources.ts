/**
 * Resources of pods and nodes: requests, limits and what metrics.k8s.io measured.
 *
 * Called by the Job, pod and node pages. Amounts are numbers in base units: CPUs and bytes.
 */

import type { Node, Pod, PodSpec } from "../api/types";
import { parseQuantity } from "./quantities";

export type Amounts = Record<string, number>;

export interface PodMetrics {
  metadata: { name: string; namespace: string };
  containers?: { name: string; usage?: Record<string, string> }[];
}

export interface ResourceRow {
  resource: string;
  request: number | null;
  limit: number | null;
  used: number | null;
}

/** What the containers of a pod ask for together: the sum, or the largest init container if that is more. */
export function sumRequests(spec: PodSpec, which: "requests" | "limits" = "requests"): Amounts {
  const total: Amounts = {};
  for (const each of spec.containers) add(total, each.resources?.[which]);
  for (const each of spec.initContainers ?? []) {
    for (const [name, text] of Object.entries(each.resources?.[which] ?? {})) {
      total[name] = Math.max(total[name] ?? 0, parseQuantity(text) || 0);
    }
  }
  return total;
}

/** What all containers of a pod use. */
export function sumUsage(metrics: PodMetrics | undefined): Amounts {
  const total: Amounts = {};
  for (const each of metrics?.containers ?? []) add(total, each.usage);
  return total;
}

/** Rows for CPU, memory and all else that is requested, of one pod or of many together. */
export function compareResources(pods: { spec: PodSpec; usage?: Amounts }[]): ResourceRow[] {
  const requests: Amounts = {};
  const limits: Amounts = {};
  const used: Amounts = {};
  for (const pod of pods) {
    merge(requests, sumRequests(pod.spec));
    merge(limits, sumRequests(pod.spec, "limits"));
    merge(used, pod.usage ?? {});
  }
  const names = [...new Set(["cpu", "memory", ...Object.keys(requests), ...Object.keys(limits)])];
  return names.map((resource) => ({
    resource,
    request: requests[resource] ?? null,
    limit: limits[resource] ?? null,
    used: used[resource] ?? null,
  }));
}

export interface NodeRow {
  resource: string;
  allocatable: number;
  allocated: number;
  used: number | null;
}

/** A node's allocatable resources, what its pods that have not ended request, and what is used. */
export function measureNode(node: Node, pods: Pod[], usage: Amounts): NodeRow[] {
  const allocated: Amounts = { pods: 0 };
  for (const pod of pods) {
    if (pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed") continue;
    merge(allocated, sumRequests(pod.spec));
    allocated.pods = (allocated.pods ?? 0) + 1;
  }
  const entries = Object.entries(node.status?.allocatable ?? {}).map(
    ([name, text]) => [name, parseQuantity(text)] as const,
  );
  const shown = entries.filter(([name, amount]) => amount > 0 || allocated[name]);
  return shown
    .sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b))
    .map(([resource, allocatable]) => ({
      resource,
      allocatable,
      allocated: allocated[resource] ?? 0,
      used: usage[resource] ?? null,
    }));
}

function rank(resource: string): number {
  const place = ["cpu", "memory", "pods"].indexOf(resource);
  return place < 0 ? 9 : place;
}

function add(total: Amounts, quantities: Record<string, string> | undefined): void {
  for (const [name, text] of Object.entries(quantities ?? {}))
    total[name] = (total[name] ?? 0) + (parseQuantity(text) || 0);
}

function merge(total: Amounts, amounts: Amounts): void {
  for (const [name, amount] of Object.entries(amounts)) total[name] = (total[name] ?? 0) + amount;
}
