// The overview of the cluster: capacity against requests, what runs and waits, throughput, and what failed last.
import type { Signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { Link } from "wouter-preact";
import { now, useCalm, useCollection } from "../api/hooks";
import { JOBS, NODES, PODS } from "../api/resources";
import type { Job, Node } from "../api/types";
import { Age, Bar, Empty, Panel, Problem } from "../components/parts";
import { ThroughputChart } from "../components/throughput";
import { formatAmount, formatCount } from "../job/quantities";
import { formatDuration } from "../job/times";
import { ACTIVE, type ActivePod, type Capacity, countEnded, endOf, measureWaiting, sumCapacity, takeActive } from "../job/load";
import { trimJob } from "./jobs";
import { stateOfNode } from "./nodes";

const MINUTES = 60;
const MOST_NAMESPACES = 8;
const MOST_FAILURES = 6;
const MINUTE = 60_000;

export function ClusterPage() {
  const nodes = useCollection<Node>(NODES);
  const pods = useCollection<ActivePod>(PODS, { fieldSelector: ACTIVE }, takeActive);
  const jobs = useCollection<Job>(JOBS, {}, trimJob);
  const problem = [nodes, pods, jobs].map((each) => each.problem.value).find(Boolean) ?? "";
  const isLoading = [nodes, pods, jobs].some((each) => each.state.value === "loading");
  return (
    <div class="cluster-page">
      <h1>Cluster</h1>
      <Problem>{problem}</Problem>
      <Figures nodes={nodes.items} pods={pods.items} jobs={jobs.items} />
      <div class="overview">
        <div>
          <CapacityPanel nodes={nodes.items} pods={pods.items} isLoading={isLoading} />
          <WaitingPanel pods={pods.items} />
        </div>
        <div>
          <ThroughputPanel jobs={jobs.items} />
          <FailuresPanel jobs={jobs.items} />
        </div>
      </div>
    </div>
  );
}

type Items<T> = Signal<ReadonlyMap<string, T>>;

function Figures({ nodes, pods, jobs }: { nodes: Items<Node>; pods: Items<ActivePod>; jobs: Items<Job> }) {
  const known = { nodes: useCalm(nodes), pods: useCalm(pods), jobs: useCalm(jobs) };
  const counts = useMemo(() => {
    const ready = [...known.nodes.values()].filter((node) => stateOfNode(node) !== "Not ready").length;
    const bound = [...known.pods.values()].filter((pod) => pod.node).length;
    const open = [...known.jobs.values()].filter((job) => !endOf(job)).length;
    return { ready, bound, open };
  }, [known.nodes, known.pods, known.jobs]);
  const waiting = known.pods.size - counts.bound;
  const isDown = counts.ready < known.nodes.size;
  return (
    <dl class="figures">
      <Figure name="Nodes ready" to="/nodes" value={`${formatCount(counts.ready)}/${formatCount(known.nodes.size)}`} tone={isDown ? "bad" : ""} />
      <Figure name="Jobs that have not ended" to="/jobs?runs=all" value={formatCount(counts.open)} />
      <Figure name="Pods on nodes" to="/pods?state=Running" value={formatCount(counts.bound)} />
      <Figure name="Pods waiting for a node" to="/pods?state=Pending" value={formatCount(waiting)} tone={waiting > 0 ? "warn" : ""} />
    </dl>
  );
}

function Figure({ name, to, value, tone = "" }: { name: string; to: string; value: string; tone?: string }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        <Link href={to} class={tone}>
          {value}
        </Link>
      </dd>
    </div>
  );
}

function CapacityPanel({ nodes, pods, isLoading }: { nodes: Items<Node>; pods: Items<ActivePod>; isLoading: boolean }) {
  const known = { nodes: useCalm(nodes), pods: useCalm(pods) };
  const rows = useMemo(() => sumCapacity(known.nodes.values(), known.pods.values()), [known.nodes, known.pods]);
  return (
    <Panel title="Capacity">
      {known.nodes.size === 0 ? (
        <Empty title={isLoading ? "Loading…" : "No nodes yet"}>{!isLoading && <p>A machine joins with the command that `jobplane token create` prints.</p>}</Empty>
      ) : (
        <ul class="capacities">
          {rows.map((row) => (
            <CapacityRow key={row.resource} {...row} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

const NAMES: Record<string, string> = { cpu: "CPU", memory: "Memory" };

function CapacityRow({ resource, allocatable, requested }: Capacity) {
  const percent = allocatable > 0 ? Math.round((requested / allocatable) * 100) : 0;
  const words = `${formatAmount(resource, requested)} of ${formatAmount(resource, allocatable)} requested`;
  return (
    <li>
      <span class="title">{NAMES[resource] ?? resource}</span>
      <span class="muted">{words}</span>
      <strong>{percent}%</strong>
      <Bar value={requested} most={allocatable} label={`${NAMES[resource] ?? resource}: ${words}`} tone={percent >= 95 ? "warn" : "info"} />
    </li>
  );
}

function ThroughputPanel({ jobs }: { jobs: Items<Job> }) {
  const known = useCalm(jobs);
  const minute = Math.floor(now.value / MINUTE);
  const counts = useMemo(() => {
    const ended = [...known.values()].map(endOf).filter((each) => each !== null);
    return countEnded(ended, Date.now(), MINUTES);
  }, [known, minute]);
  const completed = counts.reduce((sum, each) => sum + each.completed, 0);
  const failed = counts.reduce((sum, each) => sum + each.failed, 0);
  return (
    <Panel title="Throughput in the last hour">
      <p class="counts">
        <span class="ok">
          <strong>{formatCount(completed)}</strong> completed
        </span>
        <span class="bad">
          <strong>{formatCount(failed)}</strong> failed
        </span>
        <span class="muted">Jobs by minute; deleted Jobs do not count</span>
      </p>
      <ThroughputChart counts={counts} />
    </Panel>
  );
}

function WaitingPanel({ pods }: { pods: Items<ActivePod> }) {
  const known = useCalm(pods);
  const tick = Math.floor(now.value / 1000);
  const rows = useMemo(() => measureWaiting(known.values(), Date.now()), [known, tick]);
  return (
    <Panel title="Running and waiting, by namespace" action={<Link href="/queues">Queues</Link>}>
      {rows.length === 0 ? (
        <Empty title="Nothing runs, and nothing waits" />
      ) : (
        <table class="namespaces">
          <thead>
            <tr>
              <th scope="col">Namespace</th>
              <th scope="col">Running</th>
              <th scope="col">Waiting</th>
              <th scope="col" class="minor">Median wait</th>
              <th scope="col">Longest</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, MOST_NAMESPACES).map((row) => (
              <tr key={row.namespace}>
                <th scope="row">
                  <Link href={`/pods?namespace=${encodeURIComponent(row.namespace)}`}>{row.namespace}</Link>
                </th>
                <td>{formatCount(row.running)}</td>
                <td>{formatCount(row.waiting)}</td>
                <td class="minor">{row.waiting ? formatDuration(row.median) : "–"}</td>
                <td>{row.waiting ? formatDuration(row.longest) : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {rows.length > MOST_NAMESPACES && <p class="muted more">and {formatCount(rows.length - MOST_NAMESPACES)} more namespaces</p>}
    </Panel>
  );
}

function FailuresPanel({ jobs }: { jobs: Items<Job> }) {
  const known = useCalm(jobs);
  const rows = useMemo(() => {
    const failed = [...known.values()].filter((job) => endOf(job)?.isFailed);
    return failed.sort((a, b) => (endOf(b)?.endedAt ?? 0) - (endOf(a)?.endedAt ?? 0)).slice(0, MOST_FAILURES);
  }, [known]);
  return (
    <Panel title="Failed last" action={<Link href="/jobs?state=Failed&runs=all">All</Link>}>
      {rows.length === 0 ? (
        <Empty title="No Job has failed" />
      ) : (
        <ul class="failures">
          {rows.map((job) => {
            const condition = job.status?.conditions?.find((each) => each.type === "Failed");
            return (
              <li key={job.metadata.uid}>
                <Link href={`/jobs/${job.metadata.namespace}/${job.metadata.name}`}>
                  {job.metadata.namespace}/{job.metadata.name}
                </Link>
                <span class="muted" title={condition?.message}>
                  {condition?.reason}
                </span>
                <Age since={condition?.lastTransitionTime} />
              </li>
            );
          })}
        </ul>
      )}
    </Panel>
  );
}
