// A list page of one resource: live rows, a search, filters and a sort that are kept in the address.
import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { useSearchParams } from "wouter-preact";
import { type Collection, MOST } from "../api/collection";
import { useCollection } from "../api/hooks";
import { type Order, OrderedRows } from "../api/ordered";
import { NAMESPACES, type Resource } from "../api/resources";
import type { KubernetesObject } from "../api/types";
import { formatCount } from "../format";
import { Icon } from "./icon";
import { Empty, Problem } from "./parts";
import { type Column, type Sorting, Table } from "./table";

interface Props<T> {
  title: string;
  resource: Resource;
  columns: readonly Column<T>[];
  linkOf?: (row: T) => string;
  /** The states that rows may be filtered by, and the state of a row. */
  states?: readonly string[];
  stateOf?: (row: T) => string;
  /** What the search looks through, beside name, namespace and labels. */
  wordsOf?: (row: T) => string;
  trim?: (row: T) => T;
  /** Asked of the server, beside the namespace and the labels of the address. */
  fieldSelector?: string;
  sorting?: Sorting;
  empty: ComponentChildren;
  /** More filters, or a button, in the toolbar. */
  action?: ComponentChildren;
}

const NEWEST: Sorting = { column: "Age", isDescending: false };

export function ListPage<T extends KubernetesObject>(props: Props<T>) {
  const { title, resource, columns, states = [] } = props;
  const [params, set] = useAddress();
  const namespace = resource.namespaced ? (params.get("namespace") ?? "") : "";
  const labels = params.get("labels") ?? "";
  const sorting = readSorting(params.get("sort")) ?? props.sorting ?? NEWEST;
  const selection = { namespace: namespace || undefined, labelSelector: labels || undefined, fieldSelector: props.fieldSelector };
  const collection = useCollection<T>(resource, selection, props.trim);
  const rows = useOrderedRows(collection, orderOf(props, params, sorting), [params.toString(), columns]).value;
  const isLoading = collection.state.value === "loading";
  const total = collection.items.value.size;
  return (
    <div class="list-page">
      <div class="toolbar">
        <h1>
          {title} <span class="count">{formatCount(rows.length)}{collection.truncated.value ? "+" : ""}</span>
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
        {states.length > 0 && <Choice name="State" value={params.get("state") ?? ""} options={states} onChange={(value) => set("state", value)} />}
        {resource.namespaced && <NamespaceChoice value={namespace} onChange={(value) => set("namespace", value)} />}
        {labels && <Chip name="Labels" value={labels} onRemove={() => set("labels", "")} />}
        {props.action}
      </div>
      <Problem>{collection.problem.value}</Problem>
      {collection.truncated.value && (
        <p class="note">Only the first {formatCount(MOST)} are shown. Choose a namespace, or add a label selector to the address: ?labels=team=vision</p>
      )}
      <Table
        label={title}
        columns={columns}
        rows={rows}
        keyOf={uidOf}
        {...(props.linkOf ? { linkOf: props.linkOf } : {})}
        sorting={sorting}
        onSort={(next) => set("sort", `${next.isDescending ? "-" : ""}${next.column}`)}
        empty={isLoading ? <Empty title="Loading…" /> : total > 0 ? <Empty title="Nothing matches the search" /> : props.empty}
      />
      <p class="hidden" role="status">
        {isLoading ? `Loading ${title}` : `${formatCount(rows.length)} ${title}`}
      </p>
    </div>
  );
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

function useOrderedRows<T>(collection: Collection<T>, order: Order<T>, inputs: unknown[]): Signal<readonly T[]> {
  const rows = useSignal<readonly T[]>([]);
  const ordered = useMemo(() => {
    const made = new OrderedRows(order);
    made.reset(collection.items.peek());
    rows.value = made.rows;
    return made;
  }, [collection, ...inputs]);
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
function orderOf<T extends KubernetesObject>({ columns, stateOf, wordsOf }: Props<T>, params: URLSearchParams, sorting: Sorting): Order<T> {
  const state = params.get("state") ?? "";
  const wanted = (params.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const by = columns.find((each) => each.name === sorting.column)?.by ?? (() => 0);
  const matches = (row: T): boolean => {
    if (state && stateOf && stateOf(row) !== state) return false;
    if (wanted.length === 0) return true;
    const text = textOf(row, wordsOf);
    return wanted.every((word) => text.includes(word));
  };
  return { by, matches, nameOf: (row) => row.metadata.name, isDescending: sorting.isDescending };
}

const texts = new WeakMap<object, string>();

function textOf<T extends KubernetesObject>(row: T, wordsOf: ((row: T) => string) | undefined): string {
  const known = texts.get(row);
  if (known !== undefined) return known;
  const { name, namespace = "", labels = {} } = row.metadata;
  const text = `${namespace}/${name} ${Object.entries(labels).map((each) => each.join("=")).join(" ")} ${wordsOf?.(row) ?? ""}`.toLowerCase();
  texts.set(row, text);
  return text;
}

function NamespaceChoice({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const namespaces = useCollection(NAMESPACES);
  const names = [...namespaces.items.value.values()].map((each) => each.metadata.name).sort();
  return <Choice name="Namespace" value={value} options={value && !names.includes(value) ? [value, ...names] : names} onChange={onChange} />;
}

export function Choice({ name, value, options, onChange }: { name: string; value: string; options: readonly string[]; onChange: (value: string) => void }) {
  return (
    <label class="choice">
      <span class="hidden">{name}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">{name}: all</option>
        {options.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A filter of the address that has no field of its own. */
export function Chip({ name, value, onRemove }: { name: string; value: string; onRemove: () => void }) {
  return (
    <button type="button" class="chip" onClick={onRemove} aria-label={`Remove the filter ${name}: ${value}`}>
      {name}: {value} <span aria-hidden="true">×</span>
    </button>
  );
}

function readSorting(text: string | null): Sorting | null {
  return text ? { column: text.replace(/^-/, ""), isDescending: text.startsWith("-") } : null;
}
