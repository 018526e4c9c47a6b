// One pod, live: its state, why it waits, containers, timeline, resources and events.
import { Link } from "wouter-preact";
import { Outcome, useAttempting } from "../actions/action";
import { ConfirmedButton, LogsButton, YamlButton } from "../actions/buttons";
import { HISTORY, deletePod } from "../actions/verbs";
import { now, useCollection, useObject } from "../api/hooks";
import { usePolled } from "../api/polling";
import { EVENTS, NODES, PODS, pathOf } from "../api/resources";
import { AttemptsPanel } from "../components/attempts";
import { Absent, DetailHead, type Fact, Facts, Moment } from "../components/detail";
import { EventsPanel } from "../components/events";
import { Panel, Problem, Status } from "../components/parts";
import { PendingPanel } from "../components/pending";
import { ResourcesPanel } from "../components/resources";
import { Timelines } from "../components/timeline";
import { addKeptRuns, attemptOf, attemptsOf, countRestarts, explainEnd, hasMoreRuns, isEnded, mergeAttempts } from "../job/attempts";
import { indexOf } from "../job/indexes";
import type { Attempt, JobRecord } from "../job/objects";
import type { ContainerState, KubeEvent, Node, Pod } from "../api/types";
import { explainPending } from "../job/pending";
import { formatBytes } from "../job/quantities";
import { type PodMetrics, compareResources, sumUsage } from "../job/resources";
import type { Tone } from "../job/state";
import { buildTimeline } from "../job/timeline";
import { formatClock, formatDistance, formatDuration, parseTime } from "../job/times";
import { useKeptRuns } from "../logs/kept-runs";

const RECORD_MS = 10_000;
const TONES: Record<string, Tone> = { Running: "busy", Pending: "waiting", Succeeded: "ok", Failed: "bad" };

export function PodPage({ namespace, name }: { namespace: string; name: string }) {
  const { object, problem } = useObject<Pod>(PODS, namespace, name);
  if (object) return <LivingPod key={object.metadata.uid} pod={object} problem={problem} />;
  return (
    <>
      <Problem>{problem}</Problem>
      <Absent object={object} what={`pod ${name} in ${namespace}`}>
        <p>
          If it was here before, its <Link href={`/logs/${namespace}/pod/${name}`}>log</Link> is kept.
        </p>
      </Absent>
    </>
  );
}

function LivingPod({ pod, problem }: { pod: Pod; problem: string }) {
  const { namespace = "", uid, name } = pod.metadata;
  const events = [
    ...useCollection<KubeEvent>(EVENTS, { namespace, fieldSelector: `involvedObject.uid=${uid}` }).items.value.values(),
  ];
  const isPending = (pod.status?.phase ?? "Pending") === "Pending";
  const nodes = usePolled<{ items: Node[] | null }>(isPending ? pathOf(NODES) : null, 30_000)?.items ?? [];
  const isRunning = pod.status?.phase === "Running";
  const query = new URLSearchParams({ fieldSelector: `metadata.name=${name}` });
  const path = `/apis/metrics.k8s.io/v1beta1/namespaces/${namespace}/pods?${query}`;
  const metrics = usePolled<{ items: PodMetrics[] | null }>(isRunning ? path : null, 10_000)?.items?.[0];
  const phase = pod.metadata.deletionTimestamp && !isEnded(pod) ? "Terminating" : (pod.status?.phase ?? "Pending");
  const known = useRecordedRuns(pod);
  const attempts = addKeptRuns(known, useKeptRuns(namespace, { pod: name }, known));
  const waits = known[0]?.phase === "Waiting";
  const usage = metrics ? { usage: sumUsage(metrics) } : {};
  return (
    <div class="detail-page">
      <DetailHead
        section="Pods"
        sectionPath="/pods"
        namespace={namespace}
        name={name}
        word={waits ? known[0]?.reason || phase : phase}
        tone={waits ? "waiting" : (TONES[phase] ?? "idle")}
        sentence={describePod(pod, attempts)}
        actions={<PodActions pod={pod} />}
      />
      <Problem>{problem}</Problem>
      <Facts facts={factsOf(pod)} />
      <PendingPanel causes={explainPending({ pods: [pod], events, nodes, now: now.value })} pods={1} />
      <div class="detail-columns">
        <div class="column">
          <ContainersPanel pod={pod} />
          {attempts.length > 1 && (
            <AttemptsPanel
              {...{ attempts, namespace, now: now.value, index: null, isIndexed: false }}
              onClearIndex={() => undefined}
              isLiving={() => true}
            />
          )}
          <Panel title="Timeline">
            <Timelines
              rows={[{ key: uid, label: name, phases: buildTimeline(pod, events, attempts) }]}
              now={now.value}
            />
          </Panel>
        </div>
        <div class="column">
          <ResourcesPanel rows={compareResources([{ spec: pod.spec, ...usage }])} note="of this pod" />
          <EventsPanel events={events} own={uid} now={now.value} />
        </div>
      </div>
    </div>
  );
}

/** What the pod does now, and the runs before, as far as its Job's record has them. */
function useRecordedRuns(pod: Pod): Attempt[] {
  const { namespace, uid, ownerReferences } = pod.metadata;
  const living = attemptsOf([pod]);
  const job = ownerReferences?.find((each) => each.controller && each.kind === "Job")?.uid;
  const path = job && hasMoreRuns(living) ? `${HISTORY}/namespaces/${namespace}/jobs/${job}` : null;
  const attempts = usePolled<JobRecord>(path, RECORD_MS, countRestarts(living))?.attempts ?? [];
  return mergeAttempts(
    living,
    attempts.filter((each) => each.podUID === uid),
  );
}

function PodActions({ pod }: { pod: Pod }) {
  const attempting = useAttempting();
  const { name, namespace = "" } = pod.metadata;
  const remove = (): void => void attempting.run(async () => void (await deletePod(pod)));
  return (
    <>
      <LogsButton path={`/logs/${namespace}/pod/${name}`} />
      <YamlButton object={pod} apiVersion="v1" kind="Pod" />
      <ConfirmedButton
        {...{ attempting, letter: "d", verb: "Delete", onConfirm: remove }}
        right={{ verb: "delete", resource: "pods", namespace, name }}
        question={`Delete pod ${name}?`}
      >
        <p>Its containers are stopped. A Job counts this as a failure and makes another pod. Its log is kept.</p>
      </ConfirmedButton>
      <Outcome attempting={attempting} />
    </>
  );
}

function ContainersPanel({ pod }: { pod: Pod }) {
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  const all = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  return (
    <Panel title={`Containers (${all.length})`}>
      <div class="wide" tabIndex={0} role="region" aria-label="Table of containers">
        <table class="data" aria-label="Containers">
          <thead>
            <tr>
              <th>Name</th>
              <th>State</th>
              <th class="minor">Image</th>
              <th class="number">Restarts</th>
              <th>
                <span class="hidden">Log</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {all.map((each) => {
              const status = statuses.find((one) => one.name === each.name);
              const path = `/logs/${pod.metadata.namespace}/pod/${pod.metadata.name}?container=${each.name}`;
              return (
                <tr key={each.name}>
                  <td class="mono">{each.name}</td>
                  <td>
                    <ContainerWord state={status?.state} />
                  </td>
                  <td class="mono minor">{each.image}</td>
                  <td class="number">{status?.restartCount ?? 0}</td>
                  <td>
                    <Link class="link" href={path} aria-label={`Log of ${each.name}`}>
                      Log
                    </Link>
                    {(status?.restartCount ?? 0) > 0 && (
                      <Link class="link" href={`${path}&previous=1`} aria-label={`Previous log of ${each.name}`}>
                        Previous
                      </Link>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function ContainerWord({ state }: { state: ContainerState | undefined }) {
  if (state?.running) return <Status tone="info">Running</Status>;
  if (!state?.terminated) return <Status tone="warn">{state?.waiting?.reason ?? "Waiting"}</Status>;
  const { exitCode, reason } = state.terminated;
  return (
    <Status tone={exitCode === 0 ? "ok" : "bad"} title={state.terminated.message}>
      {reason ?? "Ended"}, exit code {exitCode}
    </Status>
  );
}

function describePod(pod: Pod, attempts: Attempt[]): string {
  const attempt = attemptOf(pod);
  const before = attempts.find((each) => each.container && explainEnd(each));
  const because = before ? `, because ${before.container} ended with ${explainEnd(before)}` : "";
  const restarts = Object.values(attempt.restarts ?? {}).reduce((sum, each) => sum + each, 0);
  const [start, end] = [parseTime(attempt.startedAt), parseTime(attempt.endedAt)];
  if (attempt.phase === "Failed")
    return `Failed: ${explainEnd(attempt)}${attempt.message ? `. ${attempt.message}` : ""}`;
  if (attempt.phase === "Succeeded")
    return `Succeeded${start !== null && end !== null ? ` in ${formatDuration(end - start)}` : ""}`;
  if (attempt.phase === "Waiting") {
    const at = parseTime(attempt.nextAt);
    return `Restart ${restarts}${at !== null && at > now.value ? ` at ${formatClock(at, now.value)}` : " soon"}${because}`;
  }
  if (start !== null && restarts) return `Running since ${formatClock(start, now.value)}, after restart ${restarts}${because}`;
  if (start !== null) return `Running since ${formatClock(start, now.value)}`;
  return pod.spec.nodeName ? `Starting on ${pod.spec.nodeName}` : "Waiting for a node";
}

function factsOf(pod: Pod): Fact[] {
  const at = now.value;
  const attempt = attemptOf(pod);
  const created = parseTime(pod.metadata.creationTimestamp);
  const owner = pod.metadata.ownerReferences?.find((each) => each.controller);
  const { namespace } = pod.metadata;
  const node = pod.spec.nodeName;
  const index = indexOf(pod);
  return [
    ["Created", <Moment at={created}>{formatDistance(created ?? at, at)}</Moment>],
    ["Job", owner?.kind === "Job" ? <Link href={`/jobs/${namespace}/${owner.name}`}>{owner.name}</Link> : null],
    ["Index", index === null ? null : `${index}`],
    ["Node", node ? <Link href={`/nodes/${node}`}>{node}</Link> : null],
    ["IP", pod.status?.podIP ?? null],
    ["Restart policy", pod.spec.restartPolicy ?? null],
    ["Peak memory", attempt.peakMemoryBytes === null ? null : formatBytes(attempt.peakMemoryBytes)],
  ];
}
