import { expect, test } from "vitest";
import { explainPending, type Evidence } from "../src/job/pending";
import type { Pod } from "../src/api/types";
import { at, makeEvent, makeJob, makeNode, makePod, NOW } from "./making";

function explain(evidence: Partial<Evidence>): string[] {
  return explainPending({ pods: [], events: [], nodes: [], now: NOW, zone: "UTC", ...evidence }).map(
    (each) => `${each.cause} ${each.change}`,
  );
}

function unplaced(message: string, requests: Record<string, string> = {}): Pod {
  const condition = { type: "PodScheduled", status: "False", reason: "Unschedulable", message };
  return makePod(
    "a",
    { phase: "Pending", conditions: [condition] },
    { containers: [{ name: "main", resources: { requests } }] },
  );
}

test("a suspended Job is to be resumed", () =>
  expect(explain({ job: makeJob({ suspend: true }) })).toEqual([
    "The Job is suspended. Resume it, and its pods are created.",
  ]));

test("a Job waits for what it runs after", () => {
  const [text] = explain({ job: makeJob({}, {}, { "jobplane.dev/after": "load:ok,clean:any" }) });
  expect(text).toContain("It starts after load is complete, and clean ends.");
});

test("back-off has its time", () => {
  const job = makeJob({}, { failed: 1 }, { "jobplane.dev/backoff": `1;${at("14:01:55")}` });
  expect(explain({ job })[0]).toContain("waits until 14:02:05 after a failure (in 5s)");
});

test("a quota that refuses its pods is told", () => {
  const events = [
    makeEvent(
      "job-uid",
      "FailedCreate",
      "Error creating: pods is forbidden: exceeded quota: small, requested: cpu=1",
      "14:00:10",
      "Warning",
    ),
  ];
  expect(explain({ job: makeJob(), events })[0]).toMatch(
    /^A ResourceQuota refuses its pods: pods is forbidden: exceeded quota: small.*raise the quota\.$/,
  );
});

test("an ended Job waits for nothing", () =>
  expect(explain({ job: makeJob({ suspend: true }, { conditions: [{ type: "Failed", status: "True" }] }) })).toEqual(
    [],
  ));

test("more than the largest node has is told with the figure", () => {
  const nodes = [makeNode("one", { cpu: "4" }), makeNode("two", { cpu: "16" })];
  const pods = [
    unplaced("0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available", { cpu: "64" }),
  ];
  expect(explain({ pods, nodes })).toEqual([
    "No node is large enough: it asks for 64 CPU, the largest node has 16. Ask for at most 16, or join a larger machine.",
  ]);
});

test("what fits a node waits until something ends", () => {
  const pods = [unplaced("0/1 nodes are available: 1 Insufficient memory.", { memory: "2Gi" })];
  expect(explain({ pods, nodes: [makeNode("one", { memory: "8Gi" })] })[0]).toContain(
    "1 node has too little free memory: it asks for 2 GiB. It starts when running pods end.",
  );
});

test("each reason of the scheduler has a sentence of its own", () => {
  const reasons =
    "1 node(s) were unschedulable, 2 node(s) had untolerated taint {gpu: yes}, 3 node(s) didn't match Pod's node affinity/selector";
  expect(explain({ pods: [unplaced(`0/6 nodes are available: ${reasons}. preemption: 0/6 nodes`)] })).toEqual([
    "1 node is cordoned. Uncordon it: `kubectl uncordon NODE`.",
    "2 nodes have the taint gpu=yes. Add a toleration to the pod template, or remove the taint.",
    "3 nodes do not match the node affinity. Label a node so that it matches, or change the selector.",
  ]);
});

test("no nodes, a queue over its quota, and a gang are told", () => {
  expect(explain({ pods: [unplaced("no nodes available to schedule pods")] })[0]).toContain("There are no nodes.");
  expect(explain({ pods: [unplaced("queue team: over its quota of cpu (4 of 4 used)")] })[0]).toContain(
    "Queue team: over its quota of cpu (4 of 4 used).",
  );
  expect(
    explain({ pods: [unplaced("2/4 pods of the group can be placed: 0/1 nodes are available: 1 Insufficient cpu.")] }),
  ).toHaveLength(2);
});

test("equal causes of many pods are one, with their number", () => {
  const pods = [1, 2, 3].map((number) => ({
    ...unplaced("no nodes available to schedule pods"),
    metadata: makePod(`p${number}`).metadata,
  }));
  expect(explainPending({ pods, events: [], nodes: [], now: NOW })).toMatchObject([{ count: 3 }]);
});

test("an image that cannot be pulled is named", () => {
  const waiting = { reason: "ImagePullBackOff", message: "Back-off pulling image" };
  const pod = makePod(
    "a",
    { phase: "Pending", containerStatuses: [{ name: "main", image: "nowhere/x", state: { waiting } }] },
    { nodeName: "one" },
  );
  expect(explain({ pods: [pod] })[0]).toContain("The image nowhere/x cannot be pulled");
});

test("a pod that the scheduler ignores points to the controllers", () =>
  expect(explain({ pods: [makePod("a", { phase: "Pending" })] })[0]).toContain(
    "has not looked at it for 2m. Check that `jobplane controllers` runs.",
  ));

test("a pod that is being placed is no cause while others run", () => {
  const young = makePod("a", { phase: "Pending" });
  young.metadata.creationTimestamp = at("14:01:58");
  expect(explain({ pods: [young] })[0]).toContain("about to place it");
  expect(explain({ pods: [young, makePod("b", { phase: "Running" })] })).toEqual([]);
});
