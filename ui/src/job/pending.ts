/**
 * Why a Job or a pod does not run, and what would have to change: computed from conditions, events, annotations and nodes.
 *
 * Called by the panel on the Job and pod pages. Each cause is one sentence in plain words, and one that says what to do.
 */

import { findTrue } from "./objects";
import type { Job, KubeEvent, Node, Pod } from "../api/types";
import { formatAmount, nameResource, parseQuantity } from "./quantities";
import { sumRequests } from "./resources";
import { readRetryTime } from "./state";
import { eventTime } from "./timeline";
import { formatClock, formatDuration, parseTime } from "./times";

export interface Cause {
  cause: string;
  change: string;
  /** How many nodes, pods or things it holds for, where that is known. */
  count?: number;
}

export interface Evidence {
  job?: Job | undefined;
  pods: Pod[];
  events: KubeEvent[];
  nodes: Node[];
  now: number;
  zone?: string | undefined;
}

const SCHEDULER_SLOW = 10_000;
const AFTER = "jobplane.dev/after";

/** All that keeps the Job's pods, or this pod, from running. Empty if nothing waits. */
export function explainPending(evidence: Evidence): Cause[] {
  const causes = evidence.job ? explainJob(evidence.job, evidence) : [];
  const waiting = evidence.pods.filter((pod) => (pod.status?.phase ?? "Pending") === "Pending");
  for (const pod of waiting) causes.push(...explainPod(pod, evidence));
  // Pods that start while others run are a matter of moments, and no cause for a panel that comes and goes.
  const isMoving = evidence.pods.some((pod) => pod.status?.phase === "Running");
  return unite(isMoving ? causes.filter((each) => !each.change.startsWith("Nothing")) : causes);
}

function explainJob(job: Job, evidence: Evidence): Cause[] {
  if (findTrue(job.status?.conditions, "Complete") || findTrue(job.status?.conditions, "Failed")) return [];
  const after = job.metadata.annotations?.[AFTER];
  if (job.spec.suspend) {
    if (after) return [explainDependency(job, after)];
    return [{ cause: "The Job is suspended.", change: "Resume it, and its pods are created." }];
  }
  if (job.spec.managedBy && job.spec.managedBy !== "kubernetes.io/job-controller") {
    return [
      {
        cause: `The Job is managed by ${job.spec.managedBy}, not by Jobplane.`,
        change: "That controller must create its pods.",
      },
    ];
  }
  const causes: Cause[] = [];
  const hasPods = (job.status?.active ?? 0) > 0;
  if (after && !hasPods && !job.status?.startTime) causes.push(explainDependency(job, after));
  const retry = hasPods ? null : readRetryTime(job, evidence.now);
  if (retry !== null) causes.push(explainBackoff(retry, evidence));
  const refusal = newest(
    evidence.events.filter((each) => each.reason === "FailedCreate" && each.involvedObject?.uid === job.metadata.uid),
  );
  if (refusal && !hasPods) causes.push(explainRefusal(refusal.message ?? ""));
  return causes;
}

function explainDependency(job: Job, after: string): Cause {
  const waiting = job.status?.conditions?.find((each) => /Dependenc|Waiting/.test(each.type) && each.message);
  const names = after.split(",").map((each) => {
    const [name, when] = each.trim().split(":");
    return `${name} ${when === "failed" ? "fails" : when === "any" ? "ends" : "is complete"}`;
  });
  return {
    cause: waiting?.message ?? `It starts after ${names.join(", and ")}.`,
    change: `Wait for it, or remove the annotation ${AFTER} to start now.`,
  };
}

function explainBackoff(at: number, { now, zone }: Evidence): Cause {
  return {
    cause: `The Job waits until ${formatClock(at, now, zone)} after a failure (in ${formatDuration(at - now)}).`,
    change: "Nothing: it is tried again by itself. Rerun it to start at once.",
  };
}

function explainRefusal(message: string): Cause {
  const text = message.replace(/^Error creating: /, "");
  if (text.includes("exceeded quota")) {
    return {
      cause: `A ResourceQuota refuses its pods: ${text}.`,
      change: "Let other pods of the namespace end, ask for less, or raise the quota.",
    };
  }
  return {
    cause: `Its pods are refused: ${text}.`,
    change: "Change the Job, or the rule of the namespace that refuses it.",
  };
}

function explainPod(pod: Pod, evidence: Evidence): Cause[] {
  const gates = pod.spec.schedulingGates ?? [];
  if (gates.length) {
    const names = gates.map((each) => each.name).join(", ");
    return [
      { cause: `Scheduling gates hold it: ${names}.`, change: "The program that set them must remove them.", count: 1 },
    ];
  }
  if (pod.spec.nodeName) return explainStart(pod, evidence);
  const condition = pod.status?.conditions?.find((each) => each.type === "PodScheduled");
  if (condition?.message) return explainScheduling(condition.message, pod, evidence.nodes);
  const age = evidence.now - (parseTime(pod.metadata.creationTimestamp) ?? evidence.now);
  if (age < SCHEDULER_SLOW)
    return [{ cause: "The scheduler is about to place it.", change: "Nothing: this takes a moment.", count: 1 }];
  return [
    {
      cause: `The scheduler has not looked at it for ${formatDuration(age)}.`,
      change: "Check that `jobplane controllers` runs.",
      count: 1,
    },
  ];
}

/** Sentences for the scheduler's message: "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable." */
export function explainScheduling(message: string, pod: Pod, nodes: Node[]): Cause[] {
  if (/^queue \S+:/.test(message)) return [explainQueue(message)];
  if (message.startsWith("no nodes available")) {
    return [
      { cause: "There are no nodes.", change: "Join a machine: `jobplane token create` prints the command.", count: 1 },
    ];
  }
  const found = /0\/\d+ nodes are available: (.*?)\.(?: preemption:| Fits if |$)/s.exec(message);
  if (!found)
    return [
      {
        cause: `${message.replace(/\.$/, "")}.`,
        change: "The scheduler tries again when something changes.",
        count: 1,
      },
    ];
  const group = /^(\d+\/\d+ pods of the group can be placed[^:]*)/.exec(message);
  const causes = splitReasons(found[1] as string).map(([count, reason]) => explainReason(count, reason, pod, nodes));
  if (!group) return causes;
  return [
    {
      cause: `Its group starts all at once or not at all: only ${group[1]}.`,
      change: "Make room for all pods of the group.",
    },
    ...causes,
  ];
}

function explainQueue(whole: string): Cause {
  const message = (whole.split(" Fits if ")[0] as string).replace(/\.$/, "");
  const asks = message.includes("may never have more");
  return {
    cause: `${message.charAt(0).toUpperCase()}${message.slice(1)}.`,
    change: asks
      ? "Ask for less, or raise the limit of the LocalQueue."
      : "It starts when other pods of the queue end. To start now, raise the quota of the LocalQueue.",
    count: 1,
  };
}

function explainReason(count: number, reason: string, pod: Pod, nodes: Node[]): Cause {
  const many = count === 1 ? "1 node" : `${count} nodes`;
  const short = /^Insufficient (\S+)$/.exec(reason);
  if (short) return explainShortage(short[1] as string, many, pod, nodes);
  if (reason === "Too many pods")
    return {
      cause: `${many} ${run(count)} as many pods as allowed.`,
      change: "Wait for pods to end, or join a machine.",
    };
  if (reason.includes("were unschedulable")) {
    return {
      cause: `${many} ${count === 1 ? "is" : "are"} cordoned.`,
      change: `Uncordon ${count === 1 ? "it" : "one"}: \`kubectl uncordon NODE\`.`,
    };
  }
  const taint = /untolerated taint \{(.*?): ?(.*?)\}/.exec(reason);
  if (taint) return explainTaint(taint[1] as string, taint[2] as string, many, count);
  if (reason.includes("didn't match Pod's node affinity/selector")) {
    return {
      cause: `${many} ${count === 1 ? "does" : "do"} not match ${nameSelector(pod)}.`,
      change: "Label a node so that it matches, or change the selector.",
    };
  }
  if (reason.includes("free ports"))
    return {
      cause: `On ${many} its host port is taken.`,
      change: "Wait for the pod that has it, or use another port.",
    };
  if (reason.startsWith("persistentvolumeclaim"))
    return { cause: `${reason}.`, change: "There are no PersistentVolumeClaims here: use another volume." };
  return {
    cause: `${many}: ${reason.replace("node(s) ", "")}.`,
    change: "Change the pod or the node so that they match.",
  };
}

function explainShortage(resource: string, many: string, pod: Pod, nodes: Node[]): Cause {
  const asked = sumRequests(pod.spec)[resource] ?? 0;
  const largest = Math.max(0, ...nodes.map((node) => parseQuantity(node.status?.allocatable?.[resource]) || 0));
  const name = nameResource(resource);
  const wants = `it asks for ${formatAmount(resource, asked)}`;
  if (nodes.length && asked > largest) {
    const has = largest ? `the largest node has ${formatAmount(resource, largest)}` : "no node has any";
    return {
      cause: `No node is large enough: ${wants} ${name}, ${has}.`,
      change: largest
        ? `Ask for at most ${formatAmount(resource, largest)}, or join a larger machine.`
        : `Join a machine that has ${name}.`,
    };
  }
  return {
    cause: `${many} ${many === "1 node" ? "has" : "have"} too little free ${name}: ${wants}.`,
    change: "It starts when running pods end. To start now, ask for less or join a machine.",
  };
}

function explainTaint(key: string, value: string, many: string, count: number): Cause {
  const verb = count === 1 ? "is" : "are";
  if (key === "node.kubernetes.io/not-ready" || key === "node.kubernetes.io/unreachable") {
    return { cause: `${many} ${verb} not ready.`, change: "Start the agent there, or check its network." };
  }
  const pressure = /^node\.kubernetes\.io\/(memory|disk|pid)-pressure$/.exec(key);
  if (pressure) return { cause: `${many} ${verb} short of ${pressure[1]}.`, change: `Free some ${pressure[1]} there.` };
  const taint = value ? `${key}=${value}` : key;
  return {
    cause: `${many} ${count === 1 ? "has" : "have"} the taint ${taint}.`,
    change: "Add a toleration to the pod template, or remove the taint.",
  };
}

function explainStart(pod: Pod, evidence: Evidence): Cause[] {
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  const causes: Cause[] = [];
  for (const each of statuses) {
    const { reason, message } = each.state?.waiting ?? {};
    if (!reason || reason === "PodInitializing" || reason === "ContainerCreating") continue;
    causes.push(explainWaiting(each.name, reason, message ?? "", each.image ?? ""));
  }
  if (causes.length) return causes;
  const trouble = newest(
    evidence.events.filter((each) => each.type === "Warning" && each.involvedObject?.uid === pod.metadata.uid),
  );
  if (trouble)
    return [
      {
        cause: `${trouble.reason}: ${trouble.message}`,
        change: `See the events of the pod and the log of node ${pod.spec.nodeName}.`,
        count: 1,
      },
    ];
  return [
    {
      cause: `It is starting on ${pod.spec.nodeName}.`,
      change: "Nothing: images are pulled and volumes are made.",
      count: 1,
    },
  ];
}

function explainWaiting(container: string, reason: string, message: string, image: string): Cause {
  const told = message ? `: ${message.replace(/\.$/, "")}` : "";
  if (/^(ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull)$/.test(reason)) {
    return {
      cause: `The image ${image} cannot be pulled${told}.`,
      change: "Check its name, the registry and the pull secret; then delete the pod or rerun the Job.",
      count: 1,
    };
  }
  if (reason === "CreateContainerConfigError") {
    return {
      cause: `Container ${container} lacks something that it names${told}.`,
      change: "Create the ConfigMap or Secret that is missing.",
      count: 1,
    };
  }
  if (reason === "CrashLoopBackOff")
    return {
      cause: `Container ${container} fails again and again${told}.`,
      change: "Read its previous log.",
      count: 1,
    };
  return { cause: `Container ${container} waits: ${reason}${told}.`, change: "See the events of the pod.", count: 1 };
}

/** "2 Insufficient cpu, 1 node(s) ..." into counts and reasons; a comma may be part of a reason. */
function splitReasons(text: string): [number, string][] {
  return text.split(/, (?=\d+ )/).map((part) => {
    const found = /^(\d+) (.*)$/s.exec(part);
    return found ? [Number(found[1]), found[2] as string] : [0, part];
  });
}

/** One line for equal causes of many pods. */
function unite(causes: Cause[]): Cause[] {
  const united = new Map<string, Cause>();
  for (const each of causes) {
    const before = united.get(each.cause);
    if (!before) united.set(each.cause, { ...each });
    else if (before.count !== undefined) before.count += each.count ?? 1;
  }
  return [...united.values()];
}

function nameSelector(pod: Pod): string {
  const pairs = Object.entries(pod.spec.nodeSelector ?? {}).map(([key, value]) => `${key}=${value}`);
  return pairs.length ? `the node selector ${pairs.join(", ")}` : "the node affinity";
}

function newest(events: KubeEvent[]): KubeEvent | undefined {
  return events.reduce<KubeEvent | undefined>(
    (best, each) => (!best || eventTime(each) >= eventTime(best) ? each : best),
    undefined,
  );
}

function run(count: number): string {
  return count === 1 ? "runs" : "run";
}
