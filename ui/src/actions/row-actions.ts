// What can be done to rows of a list, to one or to many: for each action the right, the rows that it applies to, and the request.
import { ApiError, request } from "../api/client";
import { type Action, may } from "../api/hooks";
import { CRONJOBS, pathOf } from "../api/resources";
import type { CronJob, Job, KubernetesObject, Node, Pod } from "../api/types";
import type { CronJob as WholeCronJob } from "../api/types";
import {
  cordon,
  deleteCronJob,
  deleteJob,
  deletePod,
  drain,
  rerunJob,
  suspendCronJob,
  suspendJob,
  triggerCronJob,
} from "./verbs";

export interface RowAction<T> {
  /** The verb on buttons, such as `Suspend`, and its participle: `suspended`. */
  readonly name: string;
  readonly done: string;
  /** The right that it needs; the namespace and, if `isNamed`, the name are the row's. */
  readonly right: Action;
  readonly isNamed?: boolean;
  /** What is lost: asked about even for a single row. */
  readonly warning?: string;
  readonly appliesTo: (row: T) => boolean;
  /** Why rows are left out: `suspended already, or ended`. */
  readonly leftOut?: string;
  /** Returns what there is to tell about a single row, if that is more than `done`. */
  readonly run: (row: T) => Promise<string | void>;
}

const hasEnded = (job: Job): boolean =>
  job.status?.conditions?.some((each) => (each.type === "Complete" || each.type === "Failed") && each.status === "True") ?? false;
const isGoing = (row: KubernetesObject): boolean => row.metadata.deletionTimestamp !== undefined;
const on = (resource: string, verb: string): Action => ({ group: resource === "jobs" || resource === "cronjobs" ? "batch" : "", resource, verb });

export const JOB_ACTIONS: readonly RowAction<Job>[] = [
  {
    name: "Suspend",
    done: "suspended",
    right: on("jobs", "patch"),
    isNamed: true,
    appliesTo: (job) => !job.spec.suspend && !hasEnded(job) && !isGoing(job),
    leftOut: "suspended already, or ended",
    run: (job) => suspendJob(job, true),
  },
  {
    name: "Resume",
    done: "resumed",
    right: on("jobs", "patch"),
    isNamed: true,
    appliesTo: (job) => job.spec.suspend === true && !hasEnded(job) && !isGoing(job),
    leftOut: "not suspended, or ended",
    run: (job) => suspendJob(job, false),
  },
  {
    name: "Rerun",
    done: "run again",
    right: { group: "history.jobplane.dev", resource: "jobs", subresource: "rerun", verb: "create" },
    appliesTo: () => true,
    run: async (job) => `${job.metadata.name} runs again as ${(await rerunJob(job)).metadata.name}`,
  },
  {
    name: "Delete",
    done: "deleted",
    right: on("jobs", "delete"),
    isNamed: true,
    warning: "Their pods are stopped and deleted. Attempts, events and logs stay in the history.",
    appliesTo: (job) => !isGoing(job),
    leftOut: "being deleted already",
    run: (job) => unlessGone(deleteJob(job)),
  },
];

export const CRONJOB_ACTIONS: readonly RowAction<CronJob>[] = [
  {
    name: "Trigger",
    done: "triggered",
    right: on("jobs", "create"),
    appliesTo: (each) => !isGoing(each),
    leftOut: "being deleted already",
    run: trigger,
  },
  {
    name: "Suspend",
    done: "suspended",
    right: on("cronjobs", "patch"),
    isNamed: true,
    appliesTo: (each) => !each.spec.suspend && !isGoing(each),
    leftOut: "suspended already",
    run: (each) => suspendCronJob(each, true),
  },
  {
    name: "Resume",
    done: "resumed",
    right: on("cronjobs", "patch"),
    isNamed: true,
    appliesTo: (each) => each.spec.suspend === true && !isGoing(each),
    leftOut: "not suspended",
    run: (each) => suspendCronJob(each, false),
  },
  {
    name: "Delete",
    done: "deleted",
    right: on("cronjobs", "delete"),
    isNamed: true,
    warning: "Their Jobs are deleted with them. Attempts, events and logs stay in the history.",
    appliesTo: (each) => !isGoing(each),
    leftOut: "being deleted already",
    run: (each) => unlessGone(deleteCronJob(each)),
  },
];

export const POD_ACTIONS: readonly RowAction<Pod>[] = [
  {
    name: "Delete",
    done: "deleted",
    right: on("pods", "delete"),
    isNamed: true,
    warning: "They are stopped. Their Jobs may start others in their place.",
    appliesTo: (pod) => !isGoing(pod),
    leftOut: "being deleted already",
    run: (pod) => unlessGone(deletePod(pod)),
  },
];

export const NODE_ACTIONS: readonly RowAction<Node>[] = [
  {
    name: "Cordon",
    done: "cordoned",
    right: on("nodes", "patch"),
    isNamed: true,
    appliesTo: (node) => !node.spec?.unschedulable,
    leftOut: "cordoned already",
    run: (node) => cordon(node.metadata.name, true),
  },
  {
    name: "Uncordon",
    done: "uncordoned",
    right: on("nodes", "patch"),
    isNamed: true,
    appliesTo: (node) => node.spec?.unschedulable === true,
    leftOut: "not cordoned",
    run: (node) => cordon(node.metadata.name, false),
  },
  {
    name: "Drain",
    done: "drained",
    right: { verb: "create", resource: "pods", subresource: "eviction" },
    warning: "No new pods come there, and all that run there are stopped. Their Jobs start them again on other nodes.",
    appliesTo: () => true,
    run: drainNode,
  },
];

/** What is gone already needs no deletion. */
async function unlessGone(deletion: Promise<void>): Promise<void> {
  await deletion.catch((error: unknown) => {
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  });
}

/** The list holds CronJobs without what their Jobs are made of, so the whole of it is read first. */
async function trigger(row: CronJob): Promise<string> {
  const { namespace, name } = row.metadata;
  const whole = await request<WholeCronJob>(pathOf(CRONJOBS, namespace, name));
  return `${name} runs as ${(await triggerCronJob(whole)).metadata.name}`;
}

async function drainNode(node: Node): Promise<string> {
  const { evicted, refused } = await drain(node.metadata.name);
  if (refused.length > 0) throw new Error(`${refused.length} pods stay, such as ${refused[0]?.pod}: ${refused[0]?.why}`);
  return `${evicted} pods evicted from ${node.metadata.name}`;
}

/** The right to do something to one row. */
export function rightOn<T extends KubernetesObject>({ right, isNamed }: RowAction<T>, { metadata }: T): Action {
  return { ...right, ...(metadata.namespace && !right.namespace ? { namespace: metadata.namespace } : {}), ...(isNamed ? { name: metadata.name } : {}) };
}

// Of so many namespaces the right is asked, if the viewer does not have it in all; the server refuses what is left.
const MOST_NAMESPACES = 20;

/** The first of the namespaces in which the viewer may not do this, `null` if there is none; "" stands for the cluster. */
export async function findForbidden<T>({ right }: RowAction<T>, namespaces: readonly string[]): Promise<string | null> {
  if (await may(right)) return null;
  for (const namespace of namespaces.slice(0, MOST_NAMESPACES)) {
    if (!namespace || !(await may({ ...right, namespace }))) return namespace;
  }
  return null;
}

