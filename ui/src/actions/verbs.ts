// What viewers do to objects: requests to the API, as kubectl would send them. Each returns when the API has accepted it.
import { ApiError, request } from "../api/client";
import { CRONJOBS, JOBS, NODES, PODS, pathOf } from "../api/resources";
import type { CronJob, Job, JobSpec, Metadata as Meta, Pod } from "../api/types";
import { isEnded } from "../job/attempts";

const MERGE = "application/merge-patch+json";
export const HISTORY = "/apis/history.jobplane.dev/v1";
const RERUN_OF = "jobplane.dev/rerun-of";
const MADE_BY_SERVERS = /^(batch\.kubernetes\.io\/(controller-uid|job-name)|controller-uid|job-name)$/;
const STATE =
  /^jobplane\.dev\/(backoff|waiting|refused|rerun-of|heartbeat)$|^batch\.kubernetes\.io\/|^kubectl\.kubernetes\.io\/last-applied/;
const EVICTIONS_AT_ONCE = 4;

type Named = { metadata: Meta };

export async function suspendJob(job: Named, suspend: boolean): Promise<void> {
  await patch(pathOf(JOBS, job.metadata.namespace, job.metadata.name), { spec: { suspend } });
}

export async function suspendCronJob(cronJob: Named, suspend: boolean): Promise<void> {
  await patch(pathOf(CRONJOBS, cronJob.metadata.namespace, cronJob.metadata.name), { spec: { suspend } });
}

export async function cordon(node: string, unschedulable: boolean): Promise<void> {
  await patch(pathOf(NODES, undefined, node), { spec: { unschedulable } });
}

/** Delete a Job with its pods. Its record stays in the history. */
export async function deleteJob(job: Named): Promise<void> {
  await remove(pathOf(JOBS, job.metadata.namespace, job.metadata.name), job.metadata.uid);
}

export async function deleteCronJob(cronJob: Named): Promise<void> {
  await remove(pathOf(CRONJOBS, cronJob.metadata.namespace, cronJob.metadata.name), cronJob.metadata.uid);
}

export async function deletePod(pod: Named): Promise<void> {
  await remove(pathOf(PODS, pod.metadata.namespace, pod.metadata.name), pod.metadata.uid);
}

/** Run a Job, or the Job of a record, again as it is. Returns the new Job. */
export async function rerunJob(job: Named): Promise<Job> {
  const { namespace, uid } = job.metadata;
  const path = `${HISTORY}/namespaces/${encodeURIComponent(namespace ?? "")}/jobs/${uid}/rerun`;
  return await request<Job>(path, { method: "POST", body: {} });
}

/** The manifest of a Job that runs another again, for the viewer to edit. */
export function makeRerun(job: { metadata: Meta; spec: JobSpec }): object {
  const { metadata, spec } = job;
  const { selector: _, suspend: __, ...rest } = spec as JobSpec & { selector?: unknown };
  const template = { ...spec.template, metadata: cleanTemplate(spec.template.metadata) };
  return {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: {
      generateName: `${metadata.name.replace(/-[a-z0-9]{5}$/, "").slice(0, 56)}-`,
      namespace: metadata.namespace,
      ...keep("labels", metadata.labels, MADE_BY_SERVERS),
      annotations: { ...filter(metadata.annotations, STATE), [RERUN_OF]: metadata.uid },
    },
    spec: { ...rest, template },
  };
}

/** Create a Job from a manifest. */
export async function createJob(manifest: unknown): Promise<Job> {
  const namespace = (manifest as { metadata?: Partial<Meta> } | null)?.metadata?.namespace;
  if (!namespace) throw new Error("metadata.namespace is missing");
  return await request<Job>(pathOf(JOBS, namespace), { method: "POST", body: manifest });
}

/** Start a CronJob's Job now, as `kubectl create job --from=cronjob/NAME` does. */
export async function triggerCronJob(cronJob: CronJob): Promise<Job> {
  const { name, namespace, uid } = cronJob.metadata;
  const { metadata, spec } = cronJob.spec.jobTemplate;
  const annotations = { ...metadata?.annotations, "cronjob.kubernetes.io/instantiate": "manual" };
  const owner = { apiVersion: "batch/v1", kind: "CronJob", name, uid, controller: true };
  return await createJob({
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: { generateName: `${name}-`, namespace, labels: metadata?.labels, annotations, ownerReferences: [owner] },
    spec,
  });
}

export interface Drained {
  evicted: number;
  refused: { pod: string; why: string }[];
}

/** Cordon a node and evict its pods, a few at a time. Pods that a disruption budget protects are told, not waited for. */
export async function drain(node: string): Promise<Drained> {
  await cordon(node, true);
  const query = new URLSearchParams({ fieldSelector: `spec.nodeName=${node}` });
  const pods = (await request<{ items: Pod[] | null }>(`${pathOf(PODS)}?${query}`)).items ?? [];
  const waiting = pods.filter((pod) => !isEnded(pod) && !pod.metadata.deletionTimestamp);
  const drained: Drained = { evicted: 0, refused: [] };
  const work = async (): Promise<void> => {
    for (let pod = waiting.pop(); pod; pod = waiting.pop()) await evict(pod, drained);
  };
  await Promise.all(Array.from({ length: EVICTIONS_AT_ONCE }, work));
  return drained;
}

async function evict(pod: Pod, drained: Drained): Promise<void> {
  const { name, namespace } = pod.metadata;
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace } };
  try {
    await request(`${pathOf(PODS, namespace, name)}/eviction`, { method: "POST", body });
    drained.evicted += 1;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return; // it has ended by itself
    drained.refused.push({ pod: `${namespace}/${name}`, why: error instanceof Error ? error.message : String(error) });
  }
}

async function patch(path: string, body: unknown): Promise<void> {
  await request(path, { method: "PATCH", body, contentType: MERGE });
}

/** The UID as a precondition: not an object of the same name that was made meanwhile. */
async function remove(path: string, uid: string): Promise<void> {
  await request(path, { method: "DELETE", body: { propagationPolicy: "Background", preconditions: { uid } } });
}

function cleanTemplate(metadata: Partial<Meta> | undefined): object {
  return { ...keep("labels", metadata?.labels, MADE_BY_SERVERS), ...keep("annotations", metadata?.annotations, STATE) };
}

function keep(name: string, values: Record<string, string> | undefined, without: RegExp): object {
  const kept = filter(values, without);
  return Object.keys(kept).length ? { [name]: kept } : {};
}

function filter(values: Record<string, string> | undefined, without: RegExp): Record<string, string> {
  return Object.fromEntries(Object.entries(values ?? {}).filter(([name]) => !without.test(name)));
}
