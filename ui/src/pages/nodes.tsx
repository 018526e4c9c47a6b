// The list of nodes: whether each is ready, and how much of it is requested.
import { useMemo } from "preact/hooks";
import { NODE_ACTIONS } from "../actions/row-actions";
import { useCollection } from "../api/hooks";
import { NODES, PODS } from "../api/resources";
import type { Node } from "../api/types";
import { ListPage } from "../components/listing";
import { Age, Bar, Empty, Status } from "../components/parts";
import type { Column } from "../components/table";
import { parseQuantity } from "../job/quantities";
import { ACTIVE, type ActivePod, type NodeLoad, loadOfNodes, takeActive } from "../job/load";

const linkOf = (node: Node): string => `/nodes/${node.metadata.name}`;

const LINKS = [
  { name: "Pods", to: (node: Node) => `/pods?${new URLSearchParams({ node: node.metadata.name })}` },
  { name: "Events", to: (node: Node) => `/events?${new URLSearchParams({ q: `Node/${node.metadata.name}` })}` },
];

const STATES = ["Ready", "Not ready", "Cordoned"] as const;

export function stateOfNode(node: Node): (typeof STATES)[number] {
  const isReady = node.status?.conditions?.some((each) => each.type === "Ready" && each.status === "True") ?? false;
  if (!isReady) return "Not ready";
  return node.spec?.unschedulable ? "Cordoned" : "Ready";
}

const trim = (node: Node): Node => ({ ...node, metadata: { ...node.metadata, annotations: {} } });

export function NodesPage() {
  const pods = useCollection<ActivePod>(PODS, { fieldSelector: ACTIVE }, takeActive);
  const loads = useMemo(() => loadOfNodes(pods.items.value.values()), [pods.items.value]);
  const columns = useMemo(() => columnsOf(loads), [loads]);
  return (
    <ListPage
      title="Nodes"
      resource={NODES}
      columns={columns}
      linkOf={linkOf}
      states={STATES}
      stateOf={stateOfNode}
      sorting={{ column: "Name", isDescending: false }}
      trim={trim}
      actions={NODE_ACTIONS}
      links={LINKS}
      empty={
        <Empty title="No nodes">
          <p>Nodes are the machines that run pods. Make a join token, then run the command that it prints on a machine:</p>
          <pre>jobplane token create</pre>
        </Empty>
      }
    />
  );
}

function columnsOf(loads: ReadonlyMap<string, NodeLoad>): readonly Column<Node>[] {
  const requested = (node: Node, resource: string): number => loads.get(node.metadata.name)?.requests[resource] ?? 0;
  const allocatable = (node: Node, resource: string): number => parseQuantity(node.status?.allocatable?.[resource] ?? "0");
  const share = (node: Node, resource: string): number => requested(node, resource) / (allocatable(node, resource) || 1);
  const resource = (name: string, key: string): Column<Node> => ({
    name,
    width: "minmax(7rem, 1fr)",
    cell: (node) => <Share value={requested(node, key)} most={allocatable(node, key)} name={name} />,
    by: (node) => share(node, key),
    isMinor: true,
  });
  return [
    { name: "Name", width: "minmax(10rem, 2fr)", cell: (node) => node.metadata.name, by: (node) => node.metadata.name },
    {
      name: "State",
      width: "8rem",
      cell: (node) => {
        const state = stateOfNode(node);
        return <Status tone={state === "Ready" ? "ok" : state === "Cordoned" ? "muted" : "bad"}>{state}</Status>;
      },
      by: stateOfNode,
    },
    {
      name: "Pods",
      width: "5rem",
      cell: (node) => loads.get(node.metadata.name)?.pods ?? 0,
      by: (node) => loads.get(node.metadata.name)?.pods ?? 0,
      isMinor: true,
      isNumber: true,
    },
    resource("CPU requested", "cpu"),
    resource("Memory requested", "memory"),
    { name: "Devices", width: "minmax(6rem, 1fr)", cell: devicesOf, isMinor: true },
    { name: "Age", width: "6rem", cell: (node) => <Age since={node.metadata.creationTimestamp} />, by: (node) => -Date.parse(node.metadata.creationTimestamp), isNumber: true },
  ];
}

const PLAIN = new Set(["cpu", "memory", "pods", "ephemeral-storage"]);

/** Resources beside the common ones, such as GPUs. */
function devicesOf(node: Node): string {
  const found = Object.entries(node.status?.allocatable ?? {}).filter(([name, amount]) => !PLAIN.has(name) && parseQuantity(amount) > 0);
  return found.map(([name, amount]) => `${amount} × ${name.replace(/^.*\//, "")}`).join(", ") || "–";
}

function Share({ value, most, name }: { value: number; most: number; name: string }) {
  const percent = most > 0 ? Math.round((value / most) * 100) : 0;
  return (
    <span class="done">
      <span class="percent">{percent}%</span>
      <Bar value={value} most={most} label={`${name}: ${percent}%`} tone={percent >= 95 ? "warn" : "info"} />
    </span>
  );
}
