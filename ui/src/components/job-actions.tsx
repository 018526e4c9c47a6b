// What can be done with a Job, or with the record of one: logs, suspend, rerun (as it is or with edits), YAML, delete.
import { useSignal } from "@preact/signals";
import { useLocation } from "wouter-preact";
import { ActionButton, type Attempting, Outcome, press, useAttempting } from "../actions/action";
import { ConfirmedButton, LogsButton, YamlButton } from "../actions/buttons";
import { createJob, deleteJob, makeRerun, rerunJob, suspendJob } from "../actions/verbs";
import { type JobRecord, findTrue } from "../job/objects";
import type { Job } from "../api/types";
import { EditDialog } from "./dialogs";
import { useKeys } from "./keys";

const RERUN = { verb: "create", group: "history.jobplane.dev", resource: "jobs", subresource: "rerun" };

export function JobActions({ job, onGone }: { job: Job; onGone: () => void }) {
  const attempting = useAttempting();
  const { name, namespace = "" } = job.metadata;
  const on = { group: "batch", resource: "jobs", namespace, name };
  const isEnded = Boolean(findTrue(job.status?.conditions, "Complete") ?? findTrue(job.status?.conditions, "Failed"));
  const toggle = (): void => void attempting.run(async () => void (await suspendJob(job, !job.spec.suspend)));
  const remove = (): void => void attempting.run(async () => void (await deleteJob(job).then(onGone)));
  useKeys({ s: () => press("s") });
  return (
    <>
      <LogsButton path={`/logs/${namespace}/job/${name}`} />
      {!isEnded && (
        <ActionButton right={{ ...on, verb: "patch" }} attempting={attempting} letter="s" onAct={toggle}>
          {job.spec.suspend ? "Resume" : "Suspend"}
        </ActionButton>
      )}
      <RerunButtons job={job} attempting={attempting} />
      <YamlButton object={job} apiVersion="batch/v1" kind="Job" />
      <ConfirmedButton
        {...{ attempting, letter: "d", verb: "Delete", onConfirm: remove }}
        right={{ ...on, verb: "delete" }}
        question={`Delete Job ${name}?`}
      >
        <p>Its pods are stopped and deleted. Its attempts, events and logs stay in the history.</p>
      </ConfirmedButton>
      <Outcome attempting={attempting} />
    </>
  );
}

/** What can be done with a record, whether its Job is still there or not. */
export function RecordActions({ record }: { record: JobRecord }) {
  const attempting = useAttempting();
  const { name, namespace = "" } = record.metadata;
  return (
    <>
      <LogsButton path={`/logs/${namespace}/job/${name}`} />
      <RerunButtons job={record} attempting={attempting} />
      <YamlButton object={record} />
      <Outcome attempting={attempting} />
    </>
  );
}

function RerunButtons({ job, attempting }: { job: Job | JobRecord; attempting: Attempting }) {
  const [, go] = useLocation();
  const isEditing = useSignal(false);
  const { name, namespace = "" } = job.metadata;
  const show = (made: Job): undefined => void go(`/jobs/${made.metadata.namespace}/${made.metadata.name}`);
  const rerun = (): void => void attempting.run(async () => show(await rerunJob(job)));
  const create = { verb: "create", group: "batch", resource: "jobs", namespace };
  useKeys({ r: () => press("r"), e: () => press("e") });
  return (
    <>
      <ActionButton right={{ ...RERUN, namespace }} attempting={attempting} letter="r" onAct={rerun}>
        Rerun
      </ActionButton>
      <ActionButton right={create} attempting={attempting} letter="e" onAct={() => (isEditing.value = true)}>
        Edit and rerun
      </ActionButton>
      {isEditing.value && (
        <EditDialog
          label={`Rerun ${name} with edits`}
          object={makeRerun(job)}
          verb="Create Job"
          onSubmit={async (manifest) => show(await createJob(manifest))}
          onClose={() => (isEditing.value = false)}
        />
      )}
    </>
  );
}
