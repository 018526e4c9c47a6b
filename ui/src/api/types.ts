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

export type Quantities = Record<string, string>;

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
  resources?: { requests?: Quantities; limits?: Quantities };
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

export interface Pod extends KubernetesObject {
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
  template: { metadata?: Partial<Metadata>; spec: PodSpec };
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

export interface Job extends KubernetesObject {
  spec: JobSpec;
  status?: JobStatus;
}

export interface CronJob extends KubernetesObject {
  spec: {
    schedule: string;
    timeZone?: string;
    suspend?: boolean;
    concurrencyPolicy?: string;
    startingDeadlineSeconds?: number;
    jobTemplate: { metadata?: Partial<Metadata>; spec: JobSpec };
  };
  status?: { active?: { name: string; uid: string }[]; lastScheduleTime?: string; lastSuccessfulTime?: string };
}

export interface Node extends KubernetesObject {
  spec?: { unschedulable?: boolean; taints?: { key: string; value?: string; effect: string }[] };
  status?: {
    capacity?: Quantities;
    allocatable?: Quantities;
    conditions?: Condition[];
    addresses?: { type: string; address: string }[];
    nodeInfo?: Record<string, string>;
  };
}

export interface KubeEvent extends KubernetesObject {
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  eventTime?: string;
  source?: { component?: string };
  reportingComponent?: string;
  series?: { count?: number; lastObservedTime?: string };
  involvedObject: { kind: string; name: string; namespace?: string; uid?: string };
}

export interface LocalQueue extends KubernetesObject {
  spec: { weight?: number; nominalQuota?: Quantities; borrowingLimit?: Quantities; cohort?: string };
  status?: { pendingPods?: number; runningPods?: number; usage?: Quantities; conditions?: Condition[] };
}
