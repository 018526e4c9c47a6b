// A table that draws only the rows that are seen, so that 100,000 rows scroll as smoothly as ten. Rows have one height.
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { isTyping } from "./shortcuts";

export interface Column<T> {
  readonly name: string;
  /** Width as in `grid-template-columns`. */
  readonly width: string;
  readonly cell: (row: T) => ComponentChildren;
  /** What rows are sorted by; a column without it cannot be sorted by. */
  readonly by?: (row: T) => string | number;
  /** Hidden on narrow screens. */
  readonly isMinor?: boolean;
  readonly isNumber?: boolean;
}

export interface Sorting {
  readonly column: string;
  readonly isDescending: boolean;
}

interface Props<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  linkOf?: (row: T) => string;
  sorting: Sorting;
  onSort: (sorting: Sorting) => void;
  empty: ComponentChildren;
}

const ROW_HEIGHT = 40;

export function Table<T>({ label, columns, rows, keyOf, linkOf, sorting, onSort, empty }: Props<T>) {
  const [, go] = useLocation();
  const scroller = useRef<HTMLDivElement>(null);
  const seen = useRows(scroller, rows.length);
  const chosen = useSignal(-1);
  const template = { gridTemplateColumns: columns.map((each) => each.width).join(" ") };

  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
      const row = rows[chosen.value];
      if (step) {
        chosen.value = Math.max(0, Math.min(rows.length - 1, chosen.value + step));
        seen.scrollToIndex(chosen.value);
      } else if (event.key === "Enter" && row && linkOf && !(event.target instanceof HTMLAnchorElement)) go(linkOf(row));
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [rows, linkOf]);

  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
      <div class="scroller" ref={scroller} tabIndex={0} role="rowgroup">
        <div class="row head" role="row" aria-rowindex={1} style={template}>
          {columns.map((each) => (
            <HeadCell key={each.name} column={each} sorting={sorting} onSort={onSort} />
          ))}
        </div>
        {rows.length === 0 && empty}
        <div class="body" style={{ height: `${seen.getTotalSize()}px` }}>
          {seen.getVirtualItems().map(({ index, start }) => {
            const row = rows[index];
            if (row === undefined) return null;
            return (
              <div
                key={keyOf(row)}
                class={index === chosen.value ? "row chosen" : "row"}
                role="row"
                aria-rowindex={index + 2}
                style={{ ...template, transform: `translateY(${start}px)` }}
                onClick={(event) => {
                  const isControl = event.target instanceof Element && event.target.closest("a, button, input");
                  if (linkOf && !isControl && !getSelection()?.toString()) go(linkOf(row));
                }}
              >
                {columns.map((each) => (
                  <div key={each.name} role="cell" class={cellClass(each)}>
                    {each.cell(row)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function HeadCell<T>({ column, sorting, onSort }: { column: Column<T>; sorting: Sorting; onSort: (sorting: Sorting) => void }) {
  const isSorted = sorting.column === column.name;
  const order = isSorted ? (sorting.isDescending ? "descending" : "ascending") : "none";
  return (
    <div role="columnheader" class={cellClass(column)} aria-sort={column.by ? order : undefined}>
      {column.by ? (
        <button
          type="button"
          class={`sort ${order}`}
          onClick={() => onSort({ column: column.name, isDescending: isSorted && !sorting.isDescending })}
        >
          {column.name}
        </button>
      ) : (
        column.name
      )}
    </div>
  );
}

const cellClass = <T,>(column: Column<T>): string =>
  ["cell", column.isMinor && "minor", column.isNumber && "number"].filter(Boolean).join(" ");

/** The rows in view of a scrolling element, as a Virtualizer; the component is drawn again when they change. */
function useRows(scroller: { current: HTMLDivElement | null }, count: number): Virtualizer<HTMLDivElement, Element> {
  const drawn = useSignal(0);
  void drawn.value;
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 8,
    scrollPaddingStart: ROW_HEIGHT,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => {
      drawn.value += 1;
    },
  };
  const rows = useMemo(() => new Virtualizer<HTMLDivElement, Element>(options), []);
  rows.setOptions(options);
  useLayoutEffect(() => rows._didMount(), [rows]);
  useLayoutEffect(() => rows._willUpdate());
  return rows;
}
