// Columns and the bar of a list whose rows can be selected: a checkbox for each row, a menu for each, and actions on all selected.
import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { type RowAction, findForbidden } from "../actions/row-actions";
import type { KubernetesObject } from "../api/types";
import { formatCount } from "../job/quantities";
import type { Selection } from "./selection";
import type { Column } from "./table";

type Rows<T> = ReadonlySignal<readonly T[]>;

/**
 * The columns with a checkbox before them and a menu behind them. They have neither listeners nor subscriptions, which would
 * cost a flick through the list more than the text of its rows: `readClick` tells what a click means.
 */
export function useRowColumns<T extends KubernetesObject>(columns: readonly Column<T>[], selection: Selection, rows: Rows<T>): readonly Column<T>[] {
  const selected = selection.uids.value;
  return useMemo(() => {
    const pick: Column<T> = {
      name: "Select",
      width: "1.25rem",
      kind: "pick",
      head: <PickAll selection={selection} rows={rows} />,
      cell: ({ metadata: { uid, name } }) => (
        <label>
          <input type="checkbox" aria-label={`Select ${name}`} checked={selected.has(uid)} data-pick={uid} />
          {selected.has(uid) && <i class="selected" aria-hidden="true" />}
        </label>
      ),
    };
    const menu: Column<T> = {
      name: "Actions",
      width: "2rem",
      kind: "menu",
      isMinor: true,
      head: <span class="hidden">Actions</span>,
      cell: ({ metadata: { uid, name } }) => (
        <button type="button" class="quiet more" aria-label={`Actions on ${name}`} aria-haspopup="menu" data-menu={uid}>
          ⋯
        </button>
      ),
    };
    return [pick, ...columns, menu];
  }, [columns, selection, rows, selected]);
}

/** What a click in the list means: the UID of a row to select, or of one whose menu is to open, and the control. */
export function readClick(event: MouseEvent): { pick?: string; menu?: string; control: HTMLElement } | null {
  const control = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-pick], [data-menu]") : null;
  return control && { ...control.dataset, control };
}

/** Selects all rows that the filters leave, also those that are not drawn. */
function PickAll<T extends KubernetesObject>({ selection, rows }: { selection: Selection; rows: Rows<T> }) {
  const selected = selection.of(rows.value).length;
  const isAll = selected > 0 && selected === rows.value.length;
  const onClick = (): void => (isAll ? selection.clear() : selection.replace(rows.peek().map((row) => row.metadata.uid)));
  return (
    <label>
      <input
        type="checkbox"
        aria-label="Select all rows"
        checked={isAll}
        ref={(box) => {
          if (box) box.indeterminate = selected > 0 && !isAll;
        }}
        onClick={onClick}
      />
    </label>
  );
}

interface BarProps<T> {
  selected: readonly T[];
  total: number;
  actions: readonly RowAction<T>[];
  onAct: (action: RowAction<T>) => void;
  onAll: () => void;
  onClear: () => void;
}

export function SelectionBar<T extends KubernetesObject>({ selected, total, actions, onAct, onAll, onClear }: BarProps<T>) {
  const namespaces = useMemo(() => [...new Set(selected.map((row) => row.metadata.namespace ?? ""))].sort(), [selected]);
  return (
    <section class="selection-bar" aria-label="Selected rows">
      <p aria-live="polite">
        <strong>{formatCount(selected.length)}</strong> selected
      </p>
      {selected.length < total && (
        <button type="button" class="link" onClick={onAll}>
          Select all {formatCount(total)}
        </button>
      )}
      <span class="selection-actions">
        {actions.map((each) => (
          <BatchButton key={each.name} action={each} selected={selected} namespaces={namespaces} onAct={() => onAct(each)} />
        ))}
      </span>
      <button type="button" aria-keyshortcuts="Escape" onClick={onClear}>
        Clear
      </button>
    </section>
  );
}

interface ButtonProps<T> {
  action: RowAction<T>;
  selected: readonly T[];
  namespaces: readonly string[];
  onAct: () => void;
}

/** Grey if it applies to none of the rows, or if the viewer may not do it in one of their namespaces. */
function BatchButton<T>({ action, selected, namespaces, onAct }: ButtonProps<T>) {
  const isAny = selected.some(action.appliesTo);
  const forbidden = useForbidden(action, namespaces);
  const isAllowed = forbidden.isKnown && forbidden.namespace === null;
  const why = forbidden.namespace === null ? `The selected are ${action.leftOut ?? "as they are"}` : refusal(action, forbidden.namespace);
  return (
    <button
      type="button"
      class={action.warning ? "danger" : undefined}
      disabled={!isAny || !isAllowed}
      title={isAny && isAllowed ? undefined : forbidden.isKnown ? why : undefined}
      onClick={onAct}
    >
      {action.name}
    </button>
  );
}

function useForbidden<T>(action: RowAction<T>, namespaces: readonly string[]): { isKnown: boolean; namespace: string | null } {
  const answer = useSignal<{ isKnown: boolean; namespace: string | null }>({ isKnown: false, namespace: null });
  useEffect(() => {
    let isShown = true;
    void findForbidden(action, namespaces).then((namespace) => {
      if (isShown) answer.value = { isKnown: true, namespace };
    });
    return () => {
      isShown = false;
    };
  }, [action, namespaces.join(" ")]);
  return answer.value;
}

function refusal<T>({ right }: RowAction<T>, namespace: string): string {
  const what = `${right.verb} ${right.resource}${right.subresource ? `/${right.subresource}` : ""}`;
  return `You may not ${what}${namespace ? ` in ${namespace}` : ""}`;
}
