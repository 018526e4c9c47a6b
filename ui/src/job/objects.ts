/**
 * Shapes of the objects that the pages of Jobs read: the part of Kubernetes' objects, and of records of deleted Jobs, that is used here.
 *
 * Everything may be absent, as the API leaves out what is empty.
 */

import type { Metadata } from "../api/types";

export type Meta = Metadata;

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Container {
  name: string;
  image?: string;
  command?: string[];
  args?: string[];
  resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
}

export interface PodSpec {
  containers: Container[];
  initContainers?: Container[];
  nodeName?: string;
  nodeSelector?: Record<string, string>;
  restartPolicy?: string;
  schedulingGates?: { name: string }[];
}

export interface Terminated {
  exitCode: number;
  signal?: number;
  reason?: string;
  message?: string;
  startedAt?: string;
  finishedAt?: string;
}

export interface ContainerState {
  waiting?: { reason?: string; message?: string };
  running?: { startedAt?: string };
  terminated?: Terminated;
}

export interface ContainerStatus {
  name: string;
  ready?: boolean;
  restartCount?: number;
  image?: string;
  state?: ContainerState;
  lastState?: ContainerState;
}

export interface Pod {
  metadata: Meta;
  spec: PodSpec;
  status?: {
    phase?: string;
    reason?: string;
    message?: string;
    startTime?: string;
    podIP?: string;
    conditions?: Condition[];
    containerStatuses?: ContainerStatus[];
    initContainerStatuses?: ContainerStatus[];
  };
}

export interface JobSpec {
  completions?: number;
  parallelism?: number;
  completionMode?: string;
  backoffLimit?: number;
  backoffLimitPerIndex?: number;
  maxFailedIndexes?: number;
  activeDeadlineSeconds?: number;
  ttlSecondsAfterFinished?: number;
  suspend?: boolean;
  managedBy?: string;
  template: { metadata?: Partial<Meta>; spec: PodSpec };
}

export interface JobStatus {
  active?: number;
  ready?: number;
  terminating?: number;
  succeeded?: number;
  failed?: number;
  startTime?: string;
  completionTime?: string;
  completedIndexes?: string;
  failedIndexes?: string;
  conditions?: Condition[];
}

export interface Job {
  apiVersion?: string;
  kind?: string;
  metadata: Meta;
  spec: JobSpec;
  status?: JobStatus;
}

export interface CronJob {
  metadata: Meta;
  spec: {
    schedule: string;
    timeZone?: string;
    suspend?: boolean;
    concurrencyPolicy?: string;
    startingDeadlineSeconds?: number;
    jobTemplate: { metadata?: Partial<Meta>; spec: JobSpec };
  };
  status?: { active?: { name: string; uid: string }[]; lastScheduleTime?: string; lastSuccessfulTime?: string };
}

export interface Node {
  metadata: Meta;
  spec?: { unschedulable?: boolean; taints?: { key: string; value?: string; effect: string }[] };
  status?: {
    capacity?: Record<string, string>;
    allocatable?: Record<string, string>;
    conditions?: Condition[];
    addresses?: { type: string; address: string }[];
    nodeInfo?: Record<string, string>;
  };
}

export interface KubeEvent {
  metadata: Meta;
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  eventTime?: string;
  source?: { component?: string };
  reportingComponent?: string;
  involvedObject?: { kind?: string; name?: string; uid?: string };
}

/** One try of a Job: a pod that lives, a pod as the record of a Job has it, or an earlier run of a container in such a pod. */
export interface Attempt {
  pod: string;
  podUID: string;
  index: number | null;
  node: string;
  createdAt: string | null;
  startedAt: string | null;
  endedAt: string | null;
  phase: string;
  exitCode: number | null;
  reason: string;
  message: string;
  peakMemoryBytes: number | null;
  output?: unknown;
  /** The container, if this is an earlier run of it, and which run, from 0. */
  container?: string;
  run?: number;
  /** Restarts of the pod's containers by name, if this is what the pod does now and a container of it was restarted. */
  restarts?: Record<string, number>;
  /** When the next run starts, if the pod waits for that. */
  nextAt?: string | null;
}

/** An attempt as a record has it, with the newest restarts of its containers. */
export interface RecordedAttempt extends Omit<Attempt, "restarts"> {
  restarts?: RecordedRun[] | null;
}

/** A run of a container that another one followed in its pod; `run` counts from 0. */
export interface RecordedRun {
  container: string;
  run: number;
  startedAt: string | null;
  endedAt: string | null;
  exitCode: number | null;
  reason: string;
  message: string;
}

export interface JobRecord {
  metadata: Meta;
  spec: JobSpec;
  status?: JobStatus;
  result: string;
  startTime?: string | null;
  endTime?: string | null;
  deletionTime?: string | null;
  rerunOf?: string | null;
  attempts?: RecordedAttempt[];
  attemptsOmitted?: number;
  events?: KubeEvent[];
}

/** The condition of a type that is true, if there is one. */
export function findTrue(conditions: Condition[] | undefined, type: string): Condition | undefined {
  return conditions?.find((each) => each.type === type && each.status === "True");
}
