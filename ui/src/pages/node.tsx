// One node, live: its conditions, what it has, has allocated and uses, and what runs there. Cordon and drain.
import { Link } from "wouter-preact";
import { ActionButton, Outcome, press, useAttempting } from "../actions/action";
import { ConfirmedButton, YamlButton } from "../actions/buttons";
import { type Drained, cordon, drain } from "../actions/verbs";
import { now, useCollection, useObject } from "../api/hooks";
import { usePolled } from "../api/polling";
import { EVENTS, NODES, PODS } from "../api/resources";
import { Absent, DetailHead, type Fact, Facts, Moment } from "../components/detail";
import { EventsPanel } from "../components/events";
import { useKeys } from "../components/keys";
import { Ending, Panel, Problem, Status } from "../components/parts";
import { NodeResourcesPanel } from "../components/resources";
import { isEnded } from "../job/attempts";
import { findTrue } from "../job/objects";
import type { KubeEvent, Node, Pod } from "../api/types";
import { formatAmount } from "../job/quantities";
import { type Amounts, measureNode, sumRequests, sumUsage } from "../job/resources";
import { formatDistance, formatDuration, parseTime } from "../job/times";

const SHOWN = 200;

export function NodePage({ name }: { name: string }) {
  const { object, problem } = useObject<Node>(NODES, undefined, name);
  if (object) return <LivingNode key={object.metadata.uid} node={object} problem={problem} />;
  return (
    <>
      <Problem>{problem}</Problem>
      <Absent object={object} what={`node ${name}`} />
    </>
  );
}

function LivingNode({ node, problem }: { node: Node; problem: string }) {
  const { name, uid } = node.metadata;
  const pods = [...useCollection<Pod>(PODS, { fieldSelector: `spec.nodeName=${name}` }).items.value.values()];
  const events = [
    ...useCollection<KubeEvent>(EVENTS, {
      fieldSelector: `involvedObject.kind=Node,involvedObject.name=${name}`,
    }).items.value.values(),
  ];
  const query = new URLSearchParams({ fieldSelector: `metadata.name=${name}` });
  const path = `/apis/metrics.k8s.io/v1beta1/nodes?${query}`;
  const metrics = usePolled<{ items: { usage?: Record<string, string> }[] | null }>(path, 10_000)?.items?.[0];
  const usage: Amounts = sumUsage({
    metadata: { name, namespace: "" },
    containers: [{ name, ...(metrics?.usage ? { usage: metrics.usage } : {}) }],
  });
  const state = describeNode(node);
  return (
    <div class="detail-page">
      <DetailHead section="Nodes" sectionPath="/nodes" name={name} {...state} actions={<NodeActions node={node} />} />
      <Problem>{problem}</Problem>
      <Facts facts={factsOf(node)} />
      <div class="detail-columns">
        <div class="column">
          <NodeResourcesPanel rows={measureNode(node, pods, usage)} />
          <PodsPanel pods={pods} />
        </div>
        <div class="column">
          <ConditionsPanel node={node} />
          <EventsPanel events={events} own={uid} now={now.value} />
        </div>
      </div>
    </div>
  );
}

function NodeActions({ node }: { node: Node }) {
  const attempting = useAttempting();
  const { name } = node.metadata;
  const isCordoned = node.spec?.unschedulable === true;
  const patch = { verb: "patch", resource: "nodes", name };
  const toggle = (): void => void attempting.run(async () => void (await cordon(name, !isCordoned)));
  const empty = (): void => void attempting.run(async () => describeDrain(await drain(name)));
  useKeys({ c: () => press("c") });
  return (
    <>
      <ActionButton right={patch} attempting={attempting} letter="c" onAct={toggle}>
        {isCordoned ? "Uncordon" : "Cordon"}
      </ActionButton>
      <YamlButton object={node} apiVersion="v1" kind="Node" />
      <ConfirmedButton
        {...{ attempting, letter: "x", verb: "Drain", onConfirm: empty }}
        right={{ verb: "create", resource: "pods", subresource: "eviction" }}
        question={`Drain node ${name}?`}
      >
        <p>No new pods come here, and all that run here are stopped. Their Jobs start them again on other nodes.</p>
      </ConfirmedButton>
      <Outcome attempting={attempting} />
    </>
  );
}

function PodsPanel({ pods }: { pods: Pod[] }) {
  const active = pods.filter((pod) => !isEnded(pod)).sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  return (
    <Panel
      title={`Runs here (${active.length})`}
      action={<span class="muted">{pods.length - active.length} ended</span>}
    >
      {active.length === 0 && <p class="panel-note">Nothing runs here now.</p>}
      {active.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Table of pods">
          <table class="data" aria-label="Pods">
            <thead>
              <tr>
                <th>Pod</th>
                <th>Namespace</th>
                <th>State</th>
                <th class="number">CPU</th>
                <th class="number">Memory</th>
                <th class="number">Age</th>
              </tr>
            </thead>
            <tbody>
              {active.slice(0, SHOWN).map((pod) => (
                <PodRow key={pod.metadata.uid} pod={pod} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {active.length > SHOWN && <p class="panel-note">And {active.length - SHOWN} more.</p>}
    </Panel>
  );
}

function PodRow({ pod }: { pod: Pod }) {
  const { name, namespace } = pod.metadata;
  const requests = sumRequests(pod.spec);
  const write = (resource: string): string =>
    requests[resource] === undefined ? "–" : formatAmount(resource, requests[resource]);
  return (
    <tr>
      <td class="mono">
        <Link href={`/pods/${namespace}/${name}`}>
          <Ending text={name} />
        </Link>
      </td>
      <td>{namespace}</td>
      <td>
        <Status tone={pod.status?.phase === "Running" ? "info" : "warn"}>{pod.status?.phase ?? "Pending"}</Status>
      </td>
      <td class="number">{write("cpu")}</td>
      <td class="number">{write("memory")}</td>
      <td class="number">{formatDuration(now.value - (parseTime(pod.metadata.creationTimestamp) ?? now.value))}</td>
    </tr>
  );
}

function ConditionsPanel({ node }: { node: Node }) {
  const all = node.status?.conditions ?? [];
  const sorted = [...all.filter((each) => each.type === "Ready"), ...all.filter((each) => each.type !== "Ready")];
  return (
    <Panel title="Conditions">
      <ul class="conditions">
        {sorted.map((each) => {
          const isGood = (each.type === "Ready") === (each.status === "True");
          return (
            <li key={each.type}>
              <Status tone={isGood ? "ok" : "bad"}>
                {each.type === "Ready" || each.status === "True" ? each.type : `No ${each.type}`}
              </Status>
              <span class="muted">{each.message ?? each.reason}</span>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}

function describeNode(node: Node): { word: string; tone: "ok" | "bad" | "waiting"; sentence: string } {
  const ready = findTrue(node.status?.conditions, "Ready");
  const condition = node.status?.conditions?.find((each) => each.type === "Ready");
  if (!ready)
    return { word: "Not ready", tone: "bad", sentence: condition?.message ?? "Its agent has not reported yet" };
  if (node.spec?.unschedulable)
    return { word: "Cordoned", tone: "waiting", sentence: "Ready, but no new pods come here until it is uncordoned" };
  return { word: "Ready", tone: "ok", sentence: "Ready for pods" };
}

function describeDrain({ evicted, refused }: Drained): string {
  const done = `Drained: ${evicted} ${evicted === 1 ? "pod" : "pods"} evicted`;
  if (refused.length === 0) return `${done}.`;
  return `${done}, ${refused.length} refused: ${refused
    .slice(0, 3)
    .map((each) => `${each.pod}: ${each.why}`)
    .join("; ")}`;
}

function factsOf(node: Node): Fact[] {
  const at = now.value;
  const created = parseTime(node.metadata.creationTimestamp);
  const info = node.status?.nodeInfo ?? {};
  const taints = node.spec?.taints ?? [];
  return [
    ["Joined", <Moment at={created}>{formatDistance(created ?? at, at)}</Moment>],
    ["Address", node.status?.addresses?.find((each) => each.type === "InternalIP")?.address ?? null],
    ["System", info.osImage ?? null],
    ["Architecture", info.architecture ?? null],
    ["Runtime", info.containerRuntimeVersion ?? null],
    ["Agent", info.kubeletVersion ?? null],
    [
      "Taints",
      taints.length
        ? taints.map((each) => `${each.key}${each.value ? `=${each.value}` : ""}:${each.effect}`).join(", ")
        : null,
    ],
  ];
}
