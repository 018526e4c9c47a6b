// The attempts of a Job as a table: newest first, those of one index, or only those that failed.
import { useSignal } from "@preact/signals";
import { Link } from "wouter-preact";
import { explainEnd } from "../job/attempts";
import type { Attempt } from "../job/objects";
import { formatBytes, formatCount } from "../job/quantities";
import { formatClock, formatDuration, parseTime } from "../job/times";
import { Moment } from "./detail";
import { Ending, Panel, Status, type Tone } from "./parts";

const PAGE = 25;
const TONES: Record<string, Tone> = { Running: "info", Pending: "warn", Succeeded: "ok", Failed: "bad", Waiting: "warn" };

interface Props {
  attempts: Attempt[];
  namespace: string;
  now: number;
  index: number | null;
  onClearIndex: () => void;
  isIndexed: boolean;
  /** Attempts that a record left out. */
  omitted?: number;
  /** Whether a pod still lives, so that it has a page. */
  isLiving: (attempt: Attempt) => boolean;
}

export function AttemptsPanel(props: Props) {
  const onlyFailed = useSignal(false);
  const most = useSignal(PAGE);
  const matching = props.attempts.filter(
    (each) => (props.index === null || each.index === props.index) && (!onlyFailed.value || each.phase === "Failed"),
  );
  const shown = matching.slice(0, most.value);
  const failed = props.attempts.filter((each) => each.phase === "Failed").length;
  const hasSeveralPhases = failed > 0 && failed < props.attempts.length;
  const tools = (
    <div class="panel-tools">
      {props.index !== null && (
        <button
          type="button"
          class="chip"
          onClick={props.onClearIndex}
          aria-label={`Index ${props.index}: show all indexes`}
        >
          Index {props.index} ✕
        </button>
      )}
      {(hasSeveralPhases || onlyFailed.value) && (
        <label class="check">
          <input
            type="checkbox"
            checked={onlyFailed.value}
            onChange={(event) => (onlyFailed.value = event.currentTarget.checked)}
          />
          Only failed
        </label>
      )}
    </div>
  );
  return (
    <Panel title={`Attempts (${formatCount(matching.length)})`} action={tools}>
      {shown.length === 0 ? (
        <p class="panel-note">{props.attempts.length ? "None matches." : "No pod was created yet."}</p>
      ) : (
        <AttemptsTable {...props} attempts={shown} />
      )}
      {matching.length > shown.length && (
        <button type="button" class="show-more" onClick={() => (most.value += PAGE)}>
          Show {Math.min(PAGE, matching.length - shown.length)} more of{" "}
          {formatCount(matching.length - shown.length)}
        </button>
      )}
      {Boolean(props.omitted) && <p class="panel-note">{props.omitted} older attempts are not kept.</p>}
    </Panel>
  );
}

function AttemptsTable({ attempts, namespace, now, isIndexed, isLiving }: Props) {
  const hasPeak = attempts.some((each) => each.peakMemoryBytes !== null);
  const hasResult = attempts.some((each) => describeResult(each).some(Boolean));
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Table of attempts">
      <table class="data" aria-label="Attempts">
        <thead>
          <tr>
            {isIndexed && <th>Index</th>}
            <th>State</th>
            {hasResult && <th>Result</th>}
            <th>Pod</th>
            <th>
              <span class="hidden">Log</span>
            </th>
            <th class="minor">Node</th>
            <th class="minor">Started</th>
            <th class="number">Ran</th>
            {hasPeak && (
              <th class="number minor" title="Most memory that its containers used">
                Peak
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {attempts.map((each) => (
            <AttemptRow
              key={`${each.podUID}/${each.container}/${each.run}`}
              attempt={each}
              {...{ namespace, now, isIndexed, hasPeak, hasResult, isLiving: isLiving(each) }}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  attempt: Attempt;
  namespace: string;
  now: number;
  isIndexed: boolean;
  hasPeak: boolean;
  hasResult: boolean;
  isLiving: boolean;
}

function AttemptRow({ attempt, namespace, now, isIndexed, hasPeak, hasResult, isLiving }: RowProps) {
  const start = parseTime(attempt.startedAt);
  const end = parseTime(attempt.endedAt);
  const log = `/logs/${namespace}/pod/${attempt.pod}?${queryOfLog(attempt, isLiving)}`;
  const isEndUnknown = end === null && (attempt.phase === "Failed" || attempt.phase === "Succeeded");
  const run = attempt.container ? ` run ${(attempt.run ?? 0) + 1}` : "";
  return (
    <tr data-pod={attempt.pod}>
      {isIndexed && <td class="number">{attempt.index ?? "–"}</td>}
      <td>
        <Status tone={TONES[attempt.phase] ?? "muted"}>{attempt.phase}</Status>
      </td>
      {hasResult && (
        <td>
          <Result attempt={attempt} />
        </td>
      )}
      <td class="mono">
        {run ? <span class="run-name">{attempt.container},{run}</span> : <PodName {...{ attempt, namespace, isLiving }} />}
      </td>
      <td>
        {attempt.startedAt && (
          <Link href={log} class="link" aria-label={`Log of ${attempt.pod}${run}`}>
            Log
          </Link>
        )}
      </td>
      <td class="mono minor">{attempt.node ? <Link href={`/nodes/${attempt.node}`}>{attempt.node}</Link> : "–"}</td>
      <td class="minor">
        <Moment at={start}>{start === null ? "" : formatClock(start, now)}</Moment>
      </td>
      <td class="number">{start === null || isEndUnknown ? "–" : formatDuration((end ?? now) - start)}</td>
      {hasPeak && (
        <td class="number minor">{attempt.peakMemoryBytes === null ? "–" : formatBytes(attempt.peakMemoryBytes)}</td>
      )}
    </tr>
  );
}

function PodName({ attempt, namespace, isLiving }: { attempt: Attempt; namespace: string; isLiving: boolean }) {
  const name = <Ending text={attempt.pod} />;
  return isLiving ? <Link href={`/pods/${namespace}/${attempt.pod}`}>{name}</Link> : name;
}

/** A run before the newest is named by container and number. */
function queryOfLog({ container, run, podUID }: Attempt, isLiving: boolean): URLSearchParams {
  return new URLSearchParams({
    ...(!isLiving && { uid: podUID }),
    ...(container && { container, run: `${run}` }),
  });
}

function Result({ attempt }: { attempt: Attempt }) {
  const [words, text] = describeResult(attempt);
  return (
    <>
      {words}
      {text && (
        <span class="result mono" title={text}>
          {text.length > 120 ? `${text.slice(0, 120)}…` : text}
        </span>
      )}
    </>
  );
}

/** How the attempt ended, and the result that the container wrote; one that it wrote says enough of a success. */
function describeResult(attempt: Attempt): [words: string, text: string] {
  const text =
    attempt.output === null || attempt.output === undefined ? attempt.message : JSON.stringify(attempt.output);
  const waits = attempt.phase === "Pending" || attempt.phase === "Waiting";
  const success = attempt.exitCode === 0 && !text ? "exit code 0" : "";
  return [explainEnd(attempt) || success || (waits ? attempt.reason : ""), text];
}
