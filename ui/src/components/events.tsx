// Events about an object, newest first.
import { formatDistance } from "../job/times";
import type { KubeEvent } from "../api/types";
import { eventTime } from "../job/timeline";
import { Moment } from "./detail";
import { Panel } from "./parts";

const MOST = 100;

/** `own`: the UID of the page's object, whose name need not stand at each event. */
export function EventsPanel({ events, own, now }: { events: KubeEvent[]; own: string; now: number }) {
  const sorted = [...events].sort(
    (a, b) => eventTime(b) - eventTime(a) || (a.metadata.name < b.metadata.name ? 1 : -1),
  );
  return (
    <Panel title={`Events (${events.length})`}>
      {sorted.length === 0 && <p class="panel-note">No events are kept.</p>}
      <ol class="events" aria-label="Events" tabIndex={0}>
        {sorted.slice(0, MOST).map((each) => (
          <li key={each.metadata.uid || each.metadata.name} class={each.type === "Warning" ? "warning" : ""}>
            <span class="event-reason">
              {each.type === "Warning" && <span class="hidden">Warning: </span>}
              {each.reason}
              {(each.count ?? 1) > 1 && <span class="muted"> × {each.count}</span>}
            </span>
            <span class="muted">
              <Moment at={eventTime(each)}>{formatDistance(eventTime(each), now)}</Moment>
            </span>
            <span class="event-message">
              {each.involvedObject?.uid !== own && <span class="mono muted">{each.involvedObject?.name} </span>}
              {each.message}
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}
