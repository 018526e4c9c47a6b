// Doing one thing to the rows of a list: one question that says to how many, progress, and what failed and why.
import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Outcome, groupFailures, runBatch } from "../actions/batch";
import type { RowAction } from "../actions/row-actions";
import type { KubernetesObject } from "../api/types";
import { formatCount } from "../job/quantities";
import { Dialog } from "./dialogs";

interface Asked<T> {
  action: RowAction<T>;
  rows: readonly T[];
  /** How many of the selected rows the action does not apply to. */
  leftOut: number;
}

interface Ended<T> extends Outcome<T> {
  action: RowAction<T>;
}

export interface Batch<T> {
  readonly asked: Signal<Asked<T> | null>;
  /** How many rows are through; null while nothing runs. */
  readonly through: Signal<number | null>;
  readonly ended: Signal<Ended<T> | null>;
  /** Ask first, unless it is one row that loses nothing. */
  begin(action: RowAction<T>, rows: readonly T[]): void;
  confirm(): void;
  stop(): void;
}

/** `onEnd` gets the rows to which it was not done. */
export function useBatch<T extends KubernetesObject>(onEnd: (left: readonly T[]) => void): Batch<T> {
  const asked = useSignal<Asked<T> | null>(null);
  const through = useSignal<number | null>(null);
  const ended = useSignal<Ended<T> | null>(null);
  const stopping = useRef(new AbortController());
  useEffect(() => () => stopping.current.abort(), []); // whoever leaves the page can no longer stop it
  const confirm = async (): Promise<void> => {
    if (!asked.value || through.value !== null) return;
    const { action, rows } = asked.value;
    stopping.current = new AbortController();
    through.value = 0;
    const outcome = await runBatch(rows, action.run, stopping.current.signal, (count) => (through.value = count));
    asked.value = through.value = null;
    ended.value = { action, ...outcome };
    onEnd([...outcome.failures.map((each) => each.row), ...outcome.untried]);
  };
  const begin = (action: RowAction<T>, rows: readonly T[]): void => {
    if (through.value !== null) return;
    const affected = rows.filter(action.appliesTo);
    asked.value = { action, rows: affected, leftOut: rows.length - affected.length };
    ended.value = null;
    if (rows.length === 1 && !action.warning) void confirm();
  };
  const stop = (): void => {
    if (through.value === null) asked.value = null;
    else stopping.current.abort();
  };
  return { asked, through, ended, begin, confirm: () => void confirm(), stop };
}

/** The question, then the progress; nothing for a single row about which there is no question. */
export function BatchDialog<T extends KubernetesObject>({ batch, noun }: { batch: Batch<T>; noun: string }) {
  const asked = batch.asked.value;
  if (!asked || (asked.rows.length + asked.leftOut === 1 && !asked.action.warning)) return null;
  const { action, rows, leftOut } = asked;
  const through = batch.through.value;
  const what = rows.length === 1 ? `${noun} ${rows[0]?.metadata.name}` : `${formatCount(rows.length)} ${noun}s`;
  return (
    <Dialog label={`${action.name} ${what}?`} onClose={batch.stop}>
      {through === null ? (
        <div class="dialog-text">
          <p class="mono affected">{listNames(rows)}</p>
          {action.warning && <p>{action.warning}</p>}
          {leftOut > 0 && (
            <p class="muted">
              {formatCount(leftOut)} of the {formatCount(rows.length + leftOut)} selected {leftOut === 1 ? "is" : "are"} left out: {action.leftOut}.
            </p>
          )}
        </div>
      ) : (
        <Progress value={through} most={rows.length} />
      )}
      <form method="dialog">
        <button type="submit">{through === null ? "Cancel" : "Stop"}</button>
        {through === null && (
          <button type="button" class={action.warning ? "danger solid" : "primary"} onClick={batch.confirm}>
            {action.name} {rows.length > 1 && formatCount(rows.length)}
          </button>
        )}
      </form>
    </Dialog>
  );
}

function Progress({ value, most }: { value: number; most: number }) {
  return (
    <div class="dialog-text">
      <progress value={value} max={most} aria-label="Progress" />
      <p aria-live="polite">
        {formatCount(value)} of {formatCount(most)}
      </p>
    </div>
  );
}

const NAMED = 5;

/** A few names, and in how many namespaces the rows are. */
function listNames(rows: readonly KubernetesObject[]): string {
  const namespaces = new Set(rows.map((row) => row.metadata.namespace ?? ""));
  const names = rows.slice(0, NAMED).map(({ metadata: { name, namespace } }) => (namespaces.size > 1 ? `${namespace}/${name}` : name));
  const more = rows.length - names.length;
  const where = namespaces.size > 1 ? `, in ${formatCount(namespaces.size)} namespaces` : "";
  return `${names.join(", ")}${more > 0 ? ` and ${formatCount(more)} more` : ""}${where}`;
}

/** What became of the last batch; it stays until it is dismissed, or another begins. */
export function BatchOutcome<T extends KubernetesObject>({ batch, noun }: { batch: Batch<T>; noun: string }) {
  const ended = batch.ended.value;
  if (!ended) return null;
  const hasFailed = ended.failures.length > 0;
  return (
    <div class={`${hasFailed ? "problem" : "note"} outcome`} role={hasFailed ? "alert" : "status"}>
      <p>{summarize(ended, noun)}</p>
      {hasFailed && (
        <ul>
          {groupFailures(ended.failures).map(({ why, rows }) => (
            <li key={why}>
              {why} <span class="mono muted">{listNames(rows)}</span>
            </li>
          ))}
        </ul>
      )}
      <button type="button" class="quiet" aria-label="Dismiss" onClick={() => (batch.ended.value = null)}>
        ×
      </button>
    </div>
  );
}

function summarize<T>({ action, succeeded, failures, untried, told }: Ended<T>, noun: string): string {
  const total = succeeded + failures.length + untried.length;
  if (total === 1 && told) return `${told}.`;
  const done = `${formatCount(succeeded)} ${succeeded === 1 ? noun : `${noun}s`} ${action.done}`;
  const failed = failures.length > 0 ? `, ${formatCount(failures.length)} failed` : "";
  const left = untried.length > 0 ? `, ${formatCount(untried.length)} not tried, as you stopped it` : "";
  return `${done}${failed}${left}${hasLeft(failures, untried) ? ". Those that are left stay selected." : "."}`;
}

const hasLeft = (failures: readonly unknown[], untried: readonly unknown[]): boolean => failures.length + untried.length > 0;
