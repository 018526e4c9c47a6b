// The result that the newest attempt has written as its termination message, if that is JSON: with a key on each line.
import type { Attempt } from "../job/objects";
import { Panel } from "./parts";

/** Nothing if there is no result, or if several indexes may have one each: these stand in the table of attempts. */
export function ResultPanel({ attempts }: { attempts: Attempt[] }) {
  const found = attempts.find((each) => typeof each.output === "object" && each.output !== null);
  if (!found || found.index !== null) return null;
  return (
    <Panel title="Result" action={<span class="muted mono">{found.pod}</span>}>
      <pre class="result-whole" tabIndex={0} role="region" aria-label="Result as JSON">
        {JSON.stringify(found.output, null, 2)}
      </pre>
    </Panel>
  );
}
