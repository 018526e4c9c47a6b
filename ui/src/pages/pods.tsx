// The list of pods.
import { POD_ACTIONS } from "../actions/row-actions";
import { PODS } from "../api/resources";
import type { Pod } from "../api/types";
import { Chip } from "../components/filters";
import { ListPage, useAddress } from "../components/listing";
import { Age, Empty, Status, type Tone } from "../components/parts";
import type { Column } from "../components/table";

const TONES: Record<string, Tone> = {
  Pending: "warn",
  Running: "info",
  Succeeded: "ok",
  Failed: "bad",
  Unknown: "bad",
  Terminating: "muted",
};

/** A pod's phase, or Terminating: what the list is filtered by. */
const phaseOf = (pod: Pod): string => {
  const phase = pod.status?.phase ?? "Pending";
  const isOver = phase === "Succeeded" || phase === "Failed";
  return pod.metadata.deletionTimestamp && !isOver ? "Terminating" : phase;
};

/** A pod's state in words, as `kubectl get pods` has it: the reason of a container that waits or failed, else the phase. */
export function stateOfPod(pod: Pod): string {
  const phase = phaseOf(pod);
  if (phase === "Terminating" || phase === "Succeeded") return phase;
  if (pod.status?.reason) return pod.status.reason;
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  const ended = statuses.find((each) => each.state?.terminated && each.state.terminated.exitCode !== 0)?.state?.terminated;
  const waiting = statuses.find((each) => each.state?.waiting?.reason)?.state?.waiting?.reason;
  if (phase === "Failed" && ended) return ended.reason && ended.reason !== "Error" ? ended.reason : `Exit code ${ended.exitCode}`;
  return waiting ?? (phase === "Pending" && !pod.spec.nodeName ? "Waiting for a node" : phase);
}

/** That of the phase, but for a container that waits in a pod that runs: it is started again, or cannot be. */
const toneOf = (pod: Pod): Tone =>
  phaseOf(pod) === "Running" && stateOfPod(pod) !== "Running" ? "warn" : (TONES[phaseOf(pod)] ?? "muted");

const restartsOf = (pod: Pod): number => (pod.status?.containerStatuses ?? []).reduce((sum, each) => sum + (each.restartCount ?? 0), 0);
const jobOf = (pod: Pod): string => pod.metadata.ownerReferences?.find((each) => each.controller)?.name ?? "";
const linkOf = (pod: Pod): string => `/pods/${pod.metadata.namespace}/${pod.metadata.name}`;

const LINKS = [{ name: "Log", to: (pod: Pod) => `/logs/${pod.metadata.namespace}/pod/${pod.metadata.name}` }];

/** Terminating is no phase, so the server cannot tell. */
const selectorOf = (state: string): string => (state === "Terminating" ? "" : `status.phase=${state}`);

const COLUMNS: readonly Column<Pod>[] = [
  { name: "Name", width: "minmax(12rem, 2.2fr)", cell: (pod) => pod.metadata.name, by: (pod) => pod.metadata.name },
  { name: "Namespace", width: "minmax(6rem, 1fr)", cell: (pod) => pod.metadata.namespace, by: (pod) => pod.metadata.namespace ?? "", isMinor: true },
  {
    name: "State",
    width: "minmax(9rem, 1fr)",
    cell: (pod) => <Status tone={toneOf(pod)} title={pod.status?.message}>{stateOfPod(pod)}</Status>,
    by: stateOfPod,
  },
  { name: "Job", width: "minmax(7rem, 1.2fr)", cell: jobOf, by: jobOf, isMinor: true },
  { name: "Node", width: "minmax(6rem, 1fr)", cell: (pod) => pod.spec.nodeName ?? <span class="muted">–</span>, by: (pod) => pod.spec.nodeName ?? "", isMinor: true },
  { name: "Restarts", width: "5rem", cell: restartsOf, by: restartsOf, isMinor: true, isNumber: true },
  { name: "Age", width: "6rem", cell: (pod) => <Age since={pod.metadata.creationTimestamp} />, by: (pod) => -Date.parse(pod.metadata.creationTimestamp), isNumber: true },
];

/** Keep of a pod only what the list reads. */
const trim = ({ metadata, spec, status }: Pod): Pod => ({
  metadata: { ...metadata, annotations: {} },
  spec: { containers: [], ...(spec.nodeName ? { nodeName: spec.nodeName } : {}) },
  ...(status ? { status } : {}),
});

export function PodsPage() {
  const [params, set] = useAddress();
  const node = params.get("node") ?? "";
  return (
    <ListPage
      title="Pods"
      resource={PODS}
      columns={COLUMNS}
      linkOf={linkOf}
      states={["Pending", "Running", "Succeeded", "Failed", "Terminating"]}
      stateOf={phaseOf}
      wordsOf={(pod) => pod.spec.nodeName ?? ""}
      selectorOf={selectorOf}
      trim={trim}
      actions={POD_ACTIONS}
      links={LINKS}
      {...(node ? { fieldSelector: `spec.nodeName=${node}`, action: <Chip name="Node" value={node} onRemove={() => set("node", "")} /> } : {})}
      empty={
        <Empty title="No pods">
          <p>Pods are the runs of Jobs: they appear here as soon as a Job starts.</p>
        </Empty>
      }
    />
  );
}
