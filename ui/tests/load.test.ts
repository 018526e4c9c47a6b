import { expect, test } from "vitest";
import type { Job, Node } from "../src/api/types";
import { type ActivePod, countEnded, endOf, loadOfNodes, measureWaiting, sumCapacity, takeActive } from "../src/job/load";

const NOW = Date.parse("2026-11-25T14:02:30Z");

const pod = (namespace: string, node: string, seconds: number, cpu = "500m"): ActivePod =>
  takeActive({
    metadata: { name: "p", uid: "u", resourceVersion: "1", namespace, creationTimestamp: new Date(NOW - seconds * 1000).toISOString() },
    spec: { nodeName: node, containers: [{ name: "main", resources: { requests: { cpu, memory: "1Gi" } } }] },
  } as unknown as ActivePod);

test("requests of bound pods are summed by node", () => {
  const loads = loadOfNodes([pod("a", "n1", 1), pod("b", "n1", 1, "2"), pod("b", "n2", 1), pod("b", "", 1)]);
  expect(loads.get("n1")).toEqual({ pods: 2, requests: { cpu: 2.5, memory: 2 * 2 ** 30 } });
  expect([...loads.keys()]).toEqual(["n1", "n2"]);
});

test("capacity has CPU and memory first, then devices; pods that wait do not count", () => {
  const node = { metadata: {}, status: { allocatable: { cpu: "4", memory: "8Gi", pods: "110", "nvidia.com/gpu": "2", "ephemeral-storage": "1Ti" } } };
  const rows = sumCapacity([node, node] as unknown as Node[], [pod("a", "n1", 1), pod("a", "", 1, "64")]);
  expect(rows.map((row) => [row.resource, row.allocatable, row.requested])).toEqual([
    ["cpu", 8, 0.5],
    ["memory", 16 * 2 ** 30, 2 ** 30],
    ["nvidia.com/gpu", 4, 0],
  ]);
});

test("waiting is measured by namespace, the longest queue first", () => {
  const rows = measureWaiting([pod("a", "n1", 9), pod("b", "", 10), pod("b", "", 30), pod("b", "", 20), pod("a", "", 5)], NOW);
  expect(rows).toEqual([
    { namespace: "b", waiting: 3, running: 0, longest: 30_000, median: 20_000 },
    { namespace: "a", waiting: 1, running: 1, longest: 5_000, median: 5_000 },
  ]);
});

test("ended Jobs are counted in the minute in which they ended", () => {
  const at = (text: string, isFailed = false) => ({ endedAt: Date.parse(`2026-11-25T${text}Z`), isFailed });
  const jobs = [at("14:02:00"), at("14:02:29", true), at("14:01:59"), at("14:00:00"), at("13:59:59"), at("14:05:00")];
  expect(countEnded(jobs, NOW, 3)).toEqual([
    { at: Date.parse("2026-11-25T14:00:00Z"), completed: 1, failed: 0 },
    { at: Date.parse("2026-11-25T14:01:00Z"), completed: 1, failed: 0 },
    { at: Date.parse("2026-11-25T14:02:00Z"), completed: 1, failed: 1 },
  ]);
});

test("a Job has ended when a condition says so", () => {
  const job = (type: string, status: string) => ({ status: { conditions: [{ type, status, lastTransitionTime: "2026-11-25T14:00:00Z" }] } }) as unknown as Job;
  expect(endOf(job("Failed", "True"))).toEqual({ endedAt: Date.parse("2026-11-25T14:00:00Z"), isFailed: true });
  expect(endOf(job("Complete", "True"))?.isFailed).toBe(false);
  expect(endOf(job("Suspended", "True"))).toBeNull();
  expect(endOf({ metadata: {}, spec: {} } as unknown as Job)).toBeNull();
});
