// What can be done with a Job: logs, suspend, rerun (as it is or with edits), delete, YAML; by button or by key.
import { useSignal } from "@preact/signals";
import { useLocation } from "wouter-preact";
import { ActionButton, Outcome, press, useAttempting } from "../actions/action";
import { createJob, deleteJob, makeRerun, rerunJob, suspendJob } from "../actions/verbs";
import { type Job, findTrue } from "../job/objects";
import { ConfirmDialog, EditDialog, YamlDialog } from "./dialogs";
import { useKeys } from "./keys";

type Open = "" | "yaml" | "delete" | "edit";

export function JobActions({ job, onGone }: { job: Job; onGone: () => void }) {
  const [, go] = useLocation();
  const open = useSignal<Open>("");
  const attempting = useAttempting();
  const { name, namespace = "" } = job.metadata;
  const on = { group: "batch", resource: "jobs", namespace };
  const isEnded = Boolean(findTrue(job.status?.conditions, "Complete") ?? findTrue(job.status?.conditions, "Failed"));
  const show = (made: Job): undefined => void go(`/jobs/${made.metadata.namespace}/${made.metadata.name}`);
  const openLogs = (): void => go(`/logs/${namespace}/job/${name}`);
  const toggle = (): void => void attempting.run(async () => void (await suspendJob(job, !job.spec.suspend)));
  const rerun = (): void => void attempting.run(async () => show(await rerunJob(job)));
  useKeys({
    l: openLogs,
    y: () => (open.value = "yaml"),
    s: () => press("s"),
    r: () => press("r"),
    e: () => press("e"),
    d: () => press("d"),
  });
  return (
    <>
      <button type="button" aria-keyshortcuts="l" onClick={openLogs}>
        Logs<kbd aria-hidden="true">l</kbd>
      </button>
      {!isEnded && (
        <ActionButton right={{ ...on, verb: "patch", name }} attempting={attempting} letter="s" onAct={toggle}>
          {job.spec.suspend ? "Resume" : "Suspend"}
        </ActionButton>
      )}
      <ActionButton right={{ ...RERUN, namespace }} attempting={attempting} letter="r" onAct={rerun}>
        Rerun
      </ActionButton>
      <ActionButton
        right={{ ...on, verb: "create" }}
        attempting={attempting}
        letter="e"
        onAct={() => (open.value = "edit")}
      >
        Edit and rerun
      </ActionButton>
      <button type="button" aria-keyshortcuts="y" onClick={() => (open.value = "yaml")}>
        YAML<kbd aria-hidden="true">y</kbd>
      </button>
      <ActionButton
        right={{ ...on, verb: "delete", name }}
        attempting={attempting}
        letter="d"
        kind="danger"
        onAct={() => (open.value = "delete")}
      >
        Delete
      </ActionButton>
      <Outcome attempting={attempting} />
      {open.value === "yaml" && (
        <YamlDialog
          object={{ apiVersion: "batch/v1", kind: "Job", ...job }}
          name={name}
          onClose={() => (open.value = "")}
        />
      )}
      {open.value === "edit" && (
        <EditDialog
          label={`Rerun ${name} with edits`}
          object={makeRerun(job)}
          verb="Create Job"
          onSubmit={async (manifest) => show(await createJob(manifest))}
          onClose={() => (open.value = "")}
        />
      )}
      {open.value === "delete" && (
        <ConfirmDialog
          label={`Delete Job ${name}?`}
          verb="Delete"
          onConfirm={() =>
            void attempting.run(async () =>
              deleteJob(job)
                .then(onGone)
                .then(() => undefined),
            )
          }
          onClose={() => (open.value = "")}
        >
          <p>Its pods are stopped and deleted. Its attempts, events and logs stay in the history.</p>
        </ConfirmDialog>
      )}
    </>
  );
}

export const RERUN = { verb: "create", group: "history.jobplane.dev", resource: "jobs", subresource: "rerun" };
