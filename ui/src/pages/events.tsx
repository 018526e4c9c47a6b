// The list of all events: what happened to which object, newest first. It finds what no page of one object shows.
import { Link } from "wouter-preact";
import { EVENTS } from "../api/resources";
import type { KubeEvent } from "../api/types";
import { ListPage } from "../components/listing";
import { Age, Empty, Status } from "../components/parts";
import type { Column } from "../components/table";

const TYPES = ["Warning", "Normal"] as const;
const PAGES: Record<string, string> = { Job: "jobs", CronJob: "cronjobs", Pod: "pods", Node: "nodes" };

/** The newest time that an event names: it may have been counted up. */
const timeOf = (event: KubeEvent): string =>
  event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.firstTimestamp ?? event.metadata.creationTimestamp;

const typeOf = (event: KubeEvent): string => event.type ?? "Normal";
const countOf = (event: KubeEvent): number => event.series?.count ?? event.count ?? 1;
const objectOf = ({ involvedObject }: KubeEvent): string => `${involvedObject.kind}/${involvedObject.name}`;

/** The page of the object, if there is one. */
function pageOf({ involvedObject: { kind, name, namespace } }: KubeEvent): string | null {
  const section = PAGES[kind];
  if (!section) return null;
  return kind === "Node" ? `/${section}/${name}` : `/${section}/${namespace}/${name}`;
}

const COLUMNS: readonly Column<KubeEvent>[] = [
  { name: "Object", width: "minmax(12rem, 1.6fr)", cell: (event) => <ObjectLink event={event} />, by: objectOf },
  {
    name: "Reason",
    width: "minmax(9rem, 1fr)",
    cell: (event) => (
      <Status tone={typeOf(event) === "Warning" ? "warn" : "muted"}>
        <span class="words">
          <span class="hidden">{typeOf(event)}: </span>
          {event.reason}
        </span>
      </Status>
    ),
    by: (event) => event.reason ?? "",
  },
  { name: "Message", width: "minmax(14rem, 3fr)", cell: (event) => <span title={event.message}>{event.message}</span>, isMinor: true },
  {
    name: "Namespace",
    width: "minmax(5rem, 0.7fr)",
    cell: (event) => event.metadata.namespace,
    by: (event) => event.metadata.namespace ?? "",
    isMinor: true,
  },
  { name: "Count", width: "4rem", cell: countOf, by: countOf, isMinor: true, isNumber: true },
  { name: "Last seen", width: "6rem", cell: (event) => <Age since={timeOf(event)} />, by: (event) => -Date.parse(timeOf(event)), isNumber: true },
];

/** The table opens rows, too. */
const stop = (event: MouseEvent): void => event.stopPropagation();

function ObjectLink({ event }: { event: KubeEvent }) {
  const page = pageOf(event);
  const words = (
    <>
      <span class="muted kind">{event.involvedObject.kind}/</span>
      {event.involvedObject.name}
    </>
  );
  return page ? (
    <Link href={page} title={objectOf(event)} onClick={stop}>
      {words}
    </Link>
  ) : (
    <span title={objectOf(event)}>{words}</span>
  );
}

/** Keep of an event only what the list reads. */
const trim = ({ metadata, type, reason, message, count, firstTimestamp, lastTimestamp, eventTime, series, involvedObject }: KubeEvent): KubeEvent => {
  const { name, namespace, uid, resourceVersion, creationTimestamp } = metadata;
  const kept = { type, reason, message, count, firstTimestamp, lastTimestamp, eventTime, series };
  return {
    ...(Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined && value !== null)) as Partial<KubeEvent>),
    metadata: { name, uid, resourceVersion, creationTimestamp, ...(namespace ? { namespace } : {}) },
    involvedObject: { kind: involvedObject.kind, name: involvedObject.name, ...(involvedObject.namespace ? { namespace: involvedObject.namespace } : {}) },
  };
};

export function EventsPage() {
  return (
    <ListPage
      title="Events"
      resource={EVENTS}
      columns={COLUMNS}
      stateName="Type"
      states={TYPES}
      stateOf={typeOf}
      selectorOf={(type) => `type=${type}`}
      wordsOf={(event) => `${objectOf(event)} ${event.reason} ${event.message}`}
      sorting={{ column: "Last seen", isDescending: false }}
      trim={trim}
      empty={
        <Empty title="No events">
          <p>Events say what happened to Jobs, pods and nodes in the last hours.</p>
        </Empty>
      }
    />
  );
}
