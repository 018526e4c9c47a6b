// A list page of one resource: live rows, a search, filters and a sort that are kept in the address, and actions on rows.
import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { useLocation, useSearchParams } from "wouter-preact";
import type { RowAction } from "../actions/row-actions";
import { type Collection, MOST } from "../api/collection";
import { useCalm, useCollection } from "../api/hooks";
import { type Order, OrderedRows } from "../api/ordered";
import type { Resource } from "../api/resources";
import type { KubernetesObject } from "../api/types";
import { formatCount } from "../job/quantities";
import { BatchDialog, BatchOutcome, useBatch } from "./batch";
import { Chip, Choice, NamespaceChoice } from "./filters";
import { Icon } from "./icon";
import { useKeys } from "./keys";
import { Empty, Problem } from "./parts";
import { type RowLink, RowMenu } from "./row-menu";
import { SelectionBar, readClick, useRowColumns } from "./row-selection";
import { SavedViews } from "./saved-views";
import { Selection } from "./selection";
import { type Column, type Sorting, Table } from "./table";

interface Props<T> {
  title: string;
  resource: Resource;
  columns: readonly Column<T>[];
  linkOf?: (row: T) => string;
  /** The states that rows may be filtered by, and the state of a row. */
  states?: readonly string[];
  stateOf?: (row: T) => string;
  /** The field selector that the server filters a state by, if its fields tell: what is not sent need not be held. */
  selectorOf?: (state: string) => string;
  /** What the search looks through, beside name, namespace and labels. */
  wordsOf?: (row: T) => string;
  trim?: (row: T) => T;
  /** What else the address asks of a row; a new function for a new address. */
  matches?: (row: T) => boolean;
  /** Rows that match, but are hidden, and what is said of them. */
  isHidden?: (row: T) => boolean;
  describeHidden?: (rows: readonly T[]) => ComponentChildren;
  /** What can be done to rows, and where their menu leads. */
  actions?: readonly RowAction<T>[];
  links?: readonly RowLink<T>[];
  /** Asked of the server, beside the namespace and the labels of the address. */
  fieldSelector?: string;
  /** What the states are called: State, unless they are something else. */
  stateName?: string;
  sorting?: Sorting;
  empty: ComponentChildren;
  /** More filters, or a button, in the toolbar. */
  action?: ComponentChildren;
}

const NEWEST: Sorting = { column: "Age", isDescending: false };

export function ListPage<T extends KubernetesObject>(props: Props<T>) {
  const { title, resource, states = [], actions = NONE } = props;
  const [path] = useLocation();
  const [params, set] = useAddress();
  const namespace = resource.namespaced ? (params.get("namespace") ?? "") : "";
  const labels = params.get("labels") ?? "";
  const state = params.get("state") ?? "";
  const sorting = readSorting(params.get("sort")) ?? props.sorting ?? NEWEST;
  const fields = [props.fieldSelector, state && props.selectorOf?.(state)].filter(Boolean).join(",");
  const selector = { namespace: namespace || undefined, labelSelector: labels || undefined, fieldSelector: fields || undefined };
  const collection = useCollection<T>(resource, selector, props.trim);
  const order = orderOf(props, params, sorting);
  const ordered = useOrderedRows(collection, without(order, props.isHidden), [params.get("sort"), props.columns], params.toString());
  const rows = ordered.value;
  const isLoading = collection.state.value === "loading";
  const total = collection.items.value.size;
  const acting = useActing(props, ordered, collection);
  return (
    <div class="list-page" onClick={acting.onClick}>
      <div class="toolbar">
        <h1>
          {title} <span class="count">{formatCount(rows.length)}{collection.truncated.value ? "+" : ""}</span>
          {isLoading && total > 0 && <span class="count"> loading {Math.floor((100 * total) / collection.expected.value)}%</span>}
        </h1>
        <label class="search">
          <Icon name="search" />
          <span class="hidden">Search {title}</span>
          <input
            type="search"
            placeholder="Search name, label, …"
            value={params.get("q") ?? ""}
            onInput={(event) => set("q", event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
          />
        </label>
        {states.length > 0 && <Choice name={props.stateName ?? "State"} value={state} options={states} onChange={(value) => set("state", value)} />}
        {resource.namespaced && <NamespaceChoice value={namespace} onChange={(value) => set("namespace", value)} />}
        {labels && <Chip name="Labels" value={labels} onRemove={() => set("labels", "")} />}
        {props.action}
        <SavedViews path={path} query={params.toString()} />
      </div>
      <Problem>{collection.problem.value}</Problem>
      {collection.truncated.value && (
        <p class="note">Only the first {formatCount(MOST)} are shown. Choose a namespace, or add a label selector to the address: ?labels=team=vision</p>
      )}
      {props.describeHidden && <Hidden collection={collection} order={order} describe={props.describeHidden} isHidden={props.isHidden} />}
      {acting.outcome}
      <Table
        label={title}
        columns={acting.columns}
        rows={rows}
        keyOf={uidOf}
        {...(props.linkOf ? { linkOf: props.linkOf } : {})}
        sorting={sorting}
        onSort={(next) => set("sort", `${next.isDescending ? "-" : ""}${next.column}`)}
        empty={isLoading ? <Empty title="Loading…" /> : total > 0 || fields || labels ? <Empty title="Nothing matches the search" /> : props.empty}
      />
      {actions.length > 0 && acting.bar}
      <p class="hidden" role="status">
        {isLoading ? `Loading ${title}` : `${formatCount(rows.length)} ${title}`}
      </p>
    </div>
  );
}

const NONE: readonly never[] = [];

interface Acting<T> {
  columns: readonly Column<T>[];
  onClick: (event: MouseEvent) => void;
  outcome: ComponentChildren;
  bar: ComponentChildren;
}

/** Selecting rows and acting on them: the columns with checkboxes and menus, and what is drawn around the table. */
function useActing<T extends KubernetesObject>(
  { columns, resource, actions = NONE, links = NONE }: Props<T>,
  rows: Signal<readonly T[]>,
  collection: Collection<T>,
): Acting<T> {
  const selection = useMemo(() => new Selection(), [resource]);
  const menu = useSignal<{ row: T; anchor: HTMLElement } | null>(null);
  const batch = useBatch<T>((left) => selection.replace(left.map(uidOf)));
  const withControls = useRowColumns(columns, selection, rows);
  const selected = selection.of(rows.value);
  const click = (part: string, isShifted = false): void => {
    const found = document.querySelector(`.row.chosen ${part}`);
    found?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, shiftKey: isShifted }));
  };
  useKeys({ x: () => click(".pick input"), X: () => click(".pick input", true), m: () => click(".menu button"), Escape: () => selection.clear() });
  const onClick = (event: MouseEvent): void => {
    const meant = readClick(event);
    if (meant?.pick) {
      if (event.shiftKey) selection.extend(meant.pick, rows.peek());
      else selection.toggle(meant.pick);
    }
    const row = collection.items.peek().get(meant?.menu ?? "");
    if (meant && row) menu.value = { row, anchor: meant.control };
  };
  if (actions.length === 0) return { columns, onClick, outcome: null, bar: null };
  return {
    columns: withControls,
    onClick,
    outcome: <BatchOutcome batch={batch} noun={resource.kind} />,
    bar: (
      <>
        {selected.length > 0 && (
          <SelectionBar
            selected={selected}
            total={rows.value.length}
            actions={actions}
            onAct={(action) => batch.begin(action, selected)}
            onAll={() => selection.replace(rows.peek().map(uidOf))}
            onClear={() => selection.clear()}
          />
        )}
        {menu.value && (
          <RowMenu {...menu.value} links={links} actions={actions} onAct={(action, row) => batch.begin(action, [row])} onClose={() => (menu.value = null)} />
        )}
        <BatchDialog batch={batch} noun={resource.kind} />
      </>
    ),
  };
}

interface HiddenProps<T> {
  collection: Collection<T>;
  order: Order<T>;
  isHidden: ((row: T) => boolean) | undefined;
  describe: (rows: readonly T[]) => ComponentChildren;
}

/** What is said of the rows that match all else, but are hidden. */
function Hidden<T>({ collection, order, isHidden, describe }: HiddenProps<T>) {
  const items = useCalm(collection.items);
  if (!isHidden) return null;
  const hidden = [...items.values()].filter((row) => isHidden(row) && order.matches(row));
  return hidden.length > 0 ? <p class="hidden-rows">{describe(hidden)}</p> : null;
}

const uidOf = (row: KubernetesObject): string => row.metadata.uid;

/** The parameters of the address, and how to set one: in place, so that Back leaves the page. */
export function useAddress(): [URLSearchParams, (name: string, value: string) => void] {
  const [params, setParams] = useSearchParams();
  const set = (name: string, value: string): void =>
    setParams(
      (before) => {
        if (value) before.set(name, value);
        else before.delete(name);
        return before;
      },
      { replace: true },
    );
  return [params, set];
}

/** `sort` and `filter`: what the order and its filter depend on. */
function useOrderedRows<T>(collection: Collection<T>, order: Order<T>, sort: unknown[], filter: string): Signal<readonly T[]> {
  const rows = useSignal<readonly T[]>([]);
  const ordered = useMemo(() => {
    const made = new OrderedRows(order);
    made.reset(collection.items.peek());
    rows.value = made.rows;
    return made;
  }, [collection, ...sort]);
  useMemo(() => {
    ordered.filter(order.matches);
    rows.value = ordered.rows;
  }, [ordered, filter]);
  // Before the browser may draw: a change between the first rows and an effect after the frame would never be seen.
  useLayoutEffect(
    () =>
      collection.onChange((change, items) => {
        if (change) ordered.update(change, items);
        else ordered.reset(items);
        rows.value = ordered.rows;
      }),
    [collection, ordered],
  );
  return rows;
}

/** The order that the address asks for: rows match whose name, namespace, labels or words have every word of the search. */
function orderOf<T extends KubernetesObject>({ columns, stateOf, wordsOf, matches: alsoMatches }: Props<T>, params: URLSearchParams, sorting: Sorting): Order<T> {
  const state = params.get("state") ?? "";
  const wanted = (params.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const by = columns.find((each) => each.name === sorting.column)?.by ?? (() => 0);
  const matches = (row: T): boolean => {
    if (state && stateOf && stateOf(row) !== state) return false;
    if (alsoMatches && !alsoMatches(row)) return false;
    if (wanted.length === 0) return true;
    const text = textOf(row, wordsOf);
    return wanted.every((word) => text.includes(word));
  };
  return { by, matches, nameOf: (row) => row.metadata.name, isDescending: sorting.isDescending };
}

const without = <T,>(order: Order<T>, isHidden: ((row: T) => boolean) | undefined): Order<T> =>
  isHidden ? { ...order, matches: (row) => !isHidden(row) && order.matches(row) } : order;

/** What the search reads of a row, kept with it: 100,000 entries of a WeakMap take twice as long. */
const TEXT = Symbol("text");

function textOf<T extends KubernetesObject>(row: T & { [TEXT]?: string }, wordsOf: ((row: T) => string) | undefined): string {
  if (row[TEXT] !== undefined) return row[TEXT];
  const { name, namespace = "", labels = {} } = row.metadata;
  let text = `${namespace}/${name} ${wordsOf?.(row) ?? ""}`;
  for (const key in labels) text += ` ${key}=${labels[key]}`;
  text = text.toLowerCase();
  row[TEXT] = text;
  return text;
}

function readSorting(text: string | null): Sorting | null {
  return text ? { column: text.replace(/^-/, ""), isDescending: text.startsWith("-") } : null;
}
