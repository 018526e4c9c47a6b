// The list of queues: each namespace's fair share, its quota, and how many pods wait.
import { LOCALQUEUES } from "../api/resources";
import type { LocalQueue } from "../api/types";
import { ListPage } from "../components/listing";
import { Age, Bar, Empty, Status } from "../components/parts";
import type { Column } from "../components/table";
import { formatAmount, parseQuantity } from "../job/quantities";

const isActive = (queue: LocalQueue): boolean => queue.status?.conditions?.some((each) => each.type === "Active" && each.status === "True") ?? false;
const keyOf = (queue: LocalQueue): string => `${queue.metadata.namespace}/${queue.metadata.name}`;

function stateOf(queue: LocalQueue): string {
  if (!isActive(queue)) return "Superseded";
  return (queue.status?.pendingPods ?? 0) > 0 ? "Waiting" : "Open";
}

const TONES = { Superseded: "muted", Waiting: "warn", Open: "ok" } as const;

const COLUMNS: readonly Column<LocalQueue>[] = [
  { name: "Queue", width: "minmax(11rem, 1.4fr)", cell: keyOf, by: keyOf },
  { name: "State", width: "8rem", cell: (queue) => <Status tone={TONES[stateOf(queue) as keyof typeof TONES]}>{stateOf(queue)}</Status>, by: stateOf },
  { name: "Waiting", width: "5rem", cell: (queue) => queue.status?.pendingPods ?? 0, by: (queue) => queue.status?.pendingPods ?? 0, isNumber: true },
  { name: "Running", width: "5rem", cell: (queue) => queue.status?.runningPods ?? 0, by: (queue) => queue.status?.runningPods ?? 0, isMinor: true, isNumber: true },
  { name: "Weight", width: "4.5rem", cell: (queue) => queue.spec.weight ?? 1, by: (queue) => queue.spec.weight ?? 1, isMinor: true, isNumber: true },
  { name: "Quota", width: "minmax(20rem, 3.6fr)", cell: (queue) => <Quota queue={queue} />, isMinor: true },
  { name: "Cohort", width: "minmax(5rem, 0.8fr)", cell: (queue) => queue.spec.cohort || <span class="muted">–</span>, by: (queue) => queue.spec.cohort ?? "", isMinor: true },
  { name: "Age", width: "5rem", cell: (queue) => <Age since={queue.metadata.creationTimestamp} />, by: (queue) => -Date.parse(queue.metadata.creationTimestamp), isMinor: true, isNumber: true },
];

function Quota({ queue }: { queue: LocalQueue }) {
  const quotas = Object.entries(queue.spec.nominalQuota ?? {}).sort();
  if (quotas.length === 0) return <span class="muted">no limit</span>;
  return (
    <span class="quotas">
      {quotas.map(([resource, most]) => (
        <QuotaOf key={resource} resource={resource} used={parseQuantity(queue.status?.usage?.[resource] ?? "0")} most={parseQuantity(String(most))} />
      ))}
    </span>
  );
}

function QuotaOf({ resource, used, most }: { resource: string; used: number; most: number }) {
  const words = `${formatAmount(resource, used)} of ${formatAmount(resource, most)}`;
  const name = resource === "cpu" ? "CPU" : resource === "memory" ? "Memory" : resource.replace(/^.*\//, "");
  return (
    <span class="quota" title={`${resource}: ${words}`}>
      <span class="muted">{name}</span> {words}
      <Bar value={used} most={most} label={`${name}: ${words}`} tone={used >= most ? "warn" : "info"} />
    </span>
  );
}

export function QueuesPage() {
  return (
    <ListPage
      title="Queues"
      resource={LOCALQUEUES}
      columns={COLUMNS}
      states={["Open", "Waiting", "Superseded"]}
      stateOf={stateOf}
      sorting={{ column: "Waiting", isDescending: true }}
      empty={
        <Empty title="No queues">
          <p>Pods are placed by priority and age. A LocalQueue gives a namespace its fair share, and a quota:</p>
          <pre>{"apiVersion: jobplane.dev/v1\nkind: LocalQueue\nmetadata: {name: default, namespace: vision}\nspec: {weight: 2, nominalQuota: {cpu: 100}}"}</pre>
        </Empty>
      }
    />
  );
}
