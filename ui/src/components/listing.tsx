// A list page of one resource: live rows, a search, filters and a sort that are kept in the address.
import type { ComponentChildren } from "preact";
import { useDeferredValue, useMemo } from "preact/compat";
import { useSearchParams } from "wouter-preact";
import { useCollection } from "../api/hooks";
import { MOST } from "../api/collection";
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
  sorting?: Sorting;
  empty: ComponentChildren;
  action?: ComponentChildren;
}

const NEWEST: Sorting = { column: "Age", isDescending: false };

export function ListPage<T extends KubernetesObject>(props: Props<T>) {
  const { title, resource, columns, stateOf, wordsOf, states = [] } = props;
  const [params, setParams] = useSearchParams();
  const namespace = params.get("namespace") ?? "";
  const labels = params.get("labels") ?? "";
  const state = params.get("state") ?? "";
  const search = params.get("q") ?? "";
  const sorting = readSorting(params.get("sort")) ?? props.sorting ?? NEWEST;
  const selection = { namespace: namespace || undefined, labelSelector: labels || undefined };
  const collection = useCollection<T>(resource, selection, props.trim);
  const items = useDeferredValue(collection.items.value);

  const set = (name: string, value: string): void =>
    setParams(
      (before) => {
        if (value) before.set(name, value);
        else before.delete(name);
        return before;
      },
      { replace: true },
    );
  const rows = useMemo(
    () => sort(select([...items.values()], search, state, stateOf, wordsOf), columns, sorting),
    [items, search, state, sorting.column, sorting.isDescending],
  );
  const isLoading = collection.state.value === "loading";
  return (
    <div class="list-page">
      <div class="toolbar">
        <h1>
          {title} <span class="count" aria-live="polite">{formatCount(rows.length)}{collection.truncated.value ? "+" : ""}</span>
        </h1>
        <label class="search">
          <Icon name="search" />
          <span class="hidden">Search {title}</span>
          <input type="search" placeholder="Search name, label, node…" value={search} onInput={(event) => set("q", event.currentTarget.value)} />
        </label>
        {states.length > 0 && (
          <Choice name="State" value={state} options={states} onChange={(value) => set("state", value)} />
        )}
        {resource.namespaced && <NamespaceChoice value={namespace} onChange={(value) => set("namespace", value)} />}
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
        keyOf={(row) => row.metadata.uid}
        {...(props.linkOf ? { linkOf: props.linkOf } : {})}
        sorting={sorting}
        onSort={(next) => set("sort", `${next.isDescending ? "-" : ""}${next.column}`)}
        empty={
          isLoading ? <Empty title="Loading…" /> : items.size > 0 ? <Empty title="Nothing matches the search." /> : props.empty
        }
      />
    </div>
  );
}

function NamespaceChoice({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const namespaces = useCollection(NAMESPACES);
  const names = [...namespaces.items.value.values()].map((each) => each.metadata.name).sort();
  return <Choice name="Namespace" value={value} options={value && !names.includes(value) ? [value, ...names] : names} onChange={onChange} />;
}

function Choice({ name, value, options, onChange }: { name: string; value: string; options: readonly string[]; onChange: (value: string) => void }) {
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

function readSorting(text: string | null): Sorting | null {
  return text ? { column: text.replace(/^-/, ""), isDescending: text.startsWith("-") } : null;
}

/** Rows whose name, namespace, labels or words contain every word of the search. */
function select<T extends KubernetesObject>(
  rows: T[],
  search: string,
  state: string,
  stateOf?: (row: T) => string,
  wordsOf?: (row: T) => string,
): T[] {
  const wanted = search.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    if (state && stateOf && stateOf(row) !== state) return false;
    if (wanted.length === 0) return true;
    const { name, namespace = "", labels = {} } = row.metadata;
    const text = `${namespace}/${name} ${Object.entries(labels).map((each) => each.join("=")).join(" ")} ${wordsOf?.(row) ?? ""}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function sort<T>(rows: T[], columns: readonly Column<T>[], { column, isDescending }: Sorting): T[] {
  const by = columns.find((each) => each.name === column)?.by;
  if (!by) return rows;
  const sign = isDescending ? -1 : 1;
  return rows
    .map((row) => [by(row), row] as const)
    .sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0))
    .map(([, row]) => row);
}
