// Why something waits, and what would have to change.
import type { Cause } from "../job/pending";
import { Panel } from "./parts";

export function PendingPanel({ causes, pods }: { causes: Cause[]; pods: number }) {
  if (causes.length === 0) return null;
  return (
    <Panel title="Why it waits">
      <ul class="causes" data-testid="causes">
        {causes.map(({ cause, change, count }) => (
          <li key={cause}>
            <p class="cause">
              {cause} {pods > 1 && count !== undefined && count > 1 && <span class="muted">({count} pods)</span>}
            </p>
            <p class="change">{change}</p>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
