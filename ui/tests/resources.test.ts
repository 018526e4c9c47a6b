import { expect, test } from "vitest";
import { compareResources, measureNode, sumRequests, sumUsage } from "../src/job/resources";
import { makeNode, makePod } from "./making";

const SPEC = {
  containers: [
    { name: "a", resources: { requests: { cpu: "500m", memory: "1Gi" }, limits: { memory: "2Gi" } } },
    { name: "b", resources: { requests: { cpu: "1" } } },
  ],
  initContainers: [{ name: "i", resources: { requests: { cpu: "4", memory: "1Mi" } } }],
};

test("requests are the sum, or the largest init container", () =>
  expect(sumRequests(SPEC)).toEqual({ cpu: 4, memory: 2 ** 30 }));

test("requests stand beside limits and use", () => {
  const usage = sumUsage({
    metadata: { name: "p", namespace: "d" },
    containers: [
      { name: "a", usage: { cpu: "250m", memory: "512Mi" } },
      { name: "b", usage: { cpu: "1" } },
    ],
  });
  expect(compareResources([{ spec: SPEC, usage }])).toEqual([
    { resource: "cpu", request: 4, limit: null, used: 1.25 },
    { resource: "memory", request: 2 ** 30, limit: 2 ** 31, used: 2 ** 29 },
  ]);
});

test("a node has allocated what its pods request that have not ended", () => {
  const node = makeNode("one", { memory: "8Gi", cpu: "8", pods: "110", "hugepages-2Mi": "0" });
  const pods = [makePod("a", { phase: "Running" }, SPEC), makePod("b", { phase: "Succeeded" }, SPEC)];
  expect(measureNode(node, pods, { cpu: 2 })).toEqual([
    { resource: "cpu", allocatable: 8, allocated: 4, used: 2 },
    { resource: "memory", allocatable: 2 ** 33, allocated: 2 ** 30, used: null },
    { resource: "pods", allocatable: 110, allocated: 1, used: null },
  ]);
});
