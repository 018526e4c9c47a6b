/** Objects for tests: a Job, a pod and an event with what a test says about them. */

import type { Job, JobSpec, JobStatus, KubeEvent, Metadata as Meta, Node, Pod } from "../src/api/types";

export const NOW = Date.parse("2026-11-25T14:02:00Z");

export function at(clock: string): string {
  return `2026-11-25T${clock}Z`;
}

function makeMeta(name: string, uid: string, more: Partial<Meta> = {}): Meta {
  return { name, namespace: "default", uid, resourceVersion: "1", creationTimestamp: at("14:00:00"), ...more };
}

export function makeJob(
  spec: Partial<JobSpec> = {},
  status: JobStatus = {},
  annotations: Record<string, string> = {},
): Job {
  const template = { spec: { containers: [{ name: "main" }] } };
  return {
    metadata: makeMeta("pi", "job-uid", { annotations }),
    spec: { completions: 1, parallelism: 1, backoffLimit: 6, template, ...spec },
    status,
  };
}

export function makePod(
  name: string,
  status: Pod["status"] = {},
  spec: Partial<Pod["spec"]> = {},
  index?: number,
): Pod {
  const labels: Record<string, string> =
    index === undefined ? {} : { "batch.kubernetes.io/job-completion-index": `${index}` };
  return {
    metadata: makeMeta(name, `${name}-uid`, { labels }),
    spec: { containers: [{ name: "main" }], ...spec },
    ...(status && { status }),
  };
}

export function makeFailedPod(name: string, exitCode: number, reason = "Error"): Pod {
  const terminated = { exitCode, reason, startedAt: at("14:00:05"), finishedAt: at("14:01:00") };
  return makePod(
    name,
    { phase: "Failed", containerStatuses: [{ name: "main", state: { terminated } }] },
    { nodeName: "one" },
  );
}

export function makeEvent(
  uid: string,
  reason: string,
  message: string,
  clock = "14:00:10",
  type = "Normal",
): KubeEvent {
  const metadata = makeMeta(`${reason}-${clock}`, `${reason}-${clock}`);
  return { metadata, type, reason, message, lastTimestamp: at(clock), involvedObject: { kind: "Pod", name: "pod", uid } };
}

export function makeNode(name: string, allocatable: Record<string, string>): Node {
  return { metadata: makeMeta(name, name), status: { allocatable } };
}
