/** What the pages of Jobs read beside Kubernetes' objects: attempts, and records of Jobs that have ended or are gone. */

import type { Condition, JobSpec, JobStatus, KubeEvent, Metadata } from "../api/types";

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
  metadata: Metadata;
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
