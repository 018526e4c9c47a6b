// What the page reads of Kubernetes' objects: a subset, everything optional that may be absent.
export interface Metadata {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion: string;
  creationTimestamp: string;
  deletionTimestamp?: string;
  generateName?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: { kind: string; name: string; uid: string; controller?: boolean }[];
}

export interface KubernetesObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
}

export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export type Quantities = Record<string, string>;

export interface Container {
  name: string;
  image?: string;
  command?: string[];
  args?: string[];
  restartPolicy?: string;
  resources?: { requests?: Quantities; limits?: Quantities };
}

export interface PodSpec {
  nodeName?: string;
  restartPolicy?: string;
  priorityClassName?: string;
  containers: Container[];
  initContainers?: Container[];
}

export interface Job extends KubernetesObject {
  spec: {
    parallelism?: number;
    completions?: number;
    completionMode?: "NonIndexed" | "Indexed";
    backoffLimit?: number;
    backoffLimitPerIndex?: number;
    activeDeadlineSeconds?: number;
    ttlSecondsAfterFinished?: number;
    suspend?: boolean;
    selector?: { matchLabels?: Record<string, string> };
    template: { metadata?: { labels?: Record<string, string> }; spec: PodSpec };
  };
  status?: {
    active?: number;
    ready?: number;
    succeeded?: number;
    failed?: number;
    terminating?: number;
    startTime?: string;
    completionTime?: string;
    completedIndexes?: string;
    failedIndexes?: string;
    conditions?: Condition[];
  };
}

export interface CronJob extends KubernetesObject {
  spec: {
    schedule: string;
    timeZone?: string;
    suspend?: boolean;
    concurrencyPolicy?: string;
    jobTemplate: { metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> }; spec: Job["spec"] };
  };
  status?: { active?: { name: string }[]; lastScheduleTime?: string; lastSuccessfulTime?: string };
}

export interface ContainerState {
  waiting?: { reason?: string; message?: string };
  running?: { startedAt?: string };
  terminated?: { exitCode: number; reason?: string; message?: string; startedAt?: string; finishedAt?: string };
}

export interface ContainerStatus {
  name: string;
  ready?: boolean;
  restartCount?: number;
  state?: ContainerState;
  lastState?: ContainerState;
}

export interface Pod extends KubernetesObject {
  spec: PodSpec;
  status?: {
    phase?: "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown";
    reason?: string;
    message?: string;
    startTime?: string;
    conditions?: Condition[];
    containerStatuses?: ContainerStatus[];
    initContainerStatuses?: ContainerStatus[];
  };
}

export interface Node extends KubernetesObject {
  spec?: { unschedulable?: boolean; taints?: { key: string; value?: string; effect: string }[] };
  status?: {
    capacity?: Quantities;
    allocatable?: Quantities;
    conditions?: Condition[];
    addresses?: { type: string; address: string }[];
    nodeInfo?: { kubeletVersion?: string; osImage?: string; containerRuntimeVersion?: string; architecture?: string };
  };
}

export interface Event extends KubernetesObject {
  type?: "Normal" | "Warning";
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  eventTime?: string;
  series?: { count?: number; lastObservedTime?: string };
  involvedObject: { kind: string; name: string; namespace?: string; uid?: string };
}

export interface LocalQueue extends KubernetesObject {
  spec: { weight?: number; nominalQuota?: Quantities; borrowingLimit?: Quantities; cohort?: string };
  status?: { pendingPods?: number; runningPods?: number; usage?: Quantities; conditions?: Condition[] };
}
