// A table that draws only the rows that are seen, so that 100,000 rows scroll as smoothly as ten. Rows have one height.
//
// A flick replaces all rows in view in one frame. So elements of rows are used again (slots.ts), a link of a row is a plain
// one, and one listener serves the clicks on all rows: a listener or a subscription of each row would cost more than its text.
import { useSignal } from "@preact/signals";
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX } from "preact";
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { useLocation, useRouter } from "wouter-preact";
import { Ending } from "./parts";
import { isTyping } from "./shortcuts";
import { Slots } from "./slots";

export interface Column<T> {
  readonly name: string;
  /** Width as in `grid-template-columns`. */
  readonly width: string;
  readonly cell: (row: T) => ComponentChildren;
  /** What rows are sorted by; a column without it cannot be sorted by. */
  readonly by?: (row: T) => string | number;
  /** Hidden on narrow screens, which have room for three columns. */
  readonly isMinor?: boolean;
  readonly isNumber?: boolean;
  /** A column of controls instead of what the row says: checkboxes, or menus. */
  readonly kind?: "pick" | "menu";
  /** Shown instead of the name. */
  readonly head?: ComponentChildren;
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
/** Rows drawn beyond each edge: a browser may scroll by a frame's way before this thread draws. */
const OVERSCAN = 8;

export function Table<T>({ label, columns, rows, keyOf, linkOf, sorting, onSort, empty }: Props<T>) {
  const scroller = useRef<HTMLDivElement>(null);
  const seen = useRows(scroller, rows.length);
  const chosen = useChoice(rows, keyOf, linkOf, scroller, (index) => seen.scrollToIndex(index));
  const template = useMemo(() => ({ gridTemplateColumns: columns.map((each) => each.width).join(" ") }), [columns]);
  const slots = useMemo(() => new Slots(), []);
  const focused = useRef(NO_SLOT);
  const { base } = useRouter();
  const items = seen.getVirtualItems().filter(({ index }) => index < rows.length);
  const keys = items.map(({ index }) => keyOf(rows[index] as T));
  const slotOf = slots.assign(keys, focused.current);
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1} aria-colcount={columns.length}>
      <div class="scroller" ref={scroller} tabIndex={rows.length > 0 ? 0 : -1} role="rowgroup">
        <div class="row head" role="row" aria-rowindex={1} style={template}>
          {columns.map((each) => (
            <HeadCell key={each.name} column={each} sorting={sorting} onSort={onSort} />
          ))}
        </div>
        <div
          class={linkOf ? "body opens" : "body"}
          role="presentation"
          style={{ height: `${seen.getTotalSize()}px` }}
          onClick={useOpening()}
          onFocusIn={(event: FocusEvent) => (focused.current = slotAt(event.target))}
          onFocusOut={() => (focused.current = NO_SLOT)}
        >
          {items.map(({ index, start }, place) => {
            const [row, slot] = [rows[index] as T, slotOf[place] as number];
            const href = linkOf && base + linkOf(row);
            return <Row key={slot} {...{ slot, row, index, start, href, columns, template }} isChosen={keys[place] === chosen} />;
          })}
        </div>
      </div>
      {rows.length === 0 && empty}
    </div>
  );
}

interface RowProps<T> {
  slot: number;
  row: T;
  index: number;
  start: number;
  isChosen: boolean;
  columns: readonly Column<T>[];
  template: JSX.CSSProperties;
  href: string | undefined;
}

/** Drawn anew only if its object or its place has changed. */
const Row = memo(function Row<T>({ slot, row, index, start, isChosen, columns, template, href }: RowProps<T>) {
  const linked = href ? columns.find(isContent) : undefined;
  return (
    <div
      class={isChosen ? "row chosen" : "row"}
      role="row"
      aria-rowindex={index + 2}
      data-slot={slot}
      style={{ ...template, transform: `translateY(${start}px)` }}
    >
      {columns.map((each) => (
        <div key={each.name} role="cell" class={cellClass(each)}>
          {each === linked ? <a href={href}>{withEnding(each.cell(row))}</a> : each.cell(row)}
        </div>
      ))}
    </div>
  );
}) as <T>(props: RowProps<T> & { key: number }) => JSX.Element;

/** A long name shows its end, which tells it from its neighbours, also where there is little room. */
const withEnding = (cell: ComponentChildren): ComponentChildren =>
  typeof cell === "string" && cell.length > LONG ? Ending({ text: cell }) : cell;

const LONG = 18;
const NO_SLOT = -1;

const slotAt = (target: EventTarget | null): number =>
  target instanceof Element ? Number(target.closest<HTMLElement>("[data-slot]")?.dataset["slot"] ?? NO_SLOT) : NO_SLOT;

/** Opens the row of a click, unless a control of it was meant, a text was marked, or the browser is to open it elsewhere. */
function useOpening(): (event: MouseEvent) => void {
  const [, go] = useLocation();
  const { base } = useRouter();
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !(event.target instanceof Element)) return;
    const link = event.target.closest(".row")?.querySelector<HTMLAnchorElement>(".cell > a");
    const control = event.target.closest("a, button, input, label");
    if (!link || (control && control !== link) || (!control && getSelection()?.toString())) return;
    event.preventDefault();
    go(link.pathname.slice(base.length) + link.search);
  };
}

/** The key of the row that j, k and the arrows have chosen. Its link has the focus, so that Enter opens it. */
function useChoice<T>(
  rows: readonly T[],
  keyOf: (row: T) => string,
  linkOf: ((row: T) => string) | undefined,
  scroller: { current: HTMLDivElement | null },
  show: (index: number) => void,
): string {
  const chosen = useSignal("");
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
      if (!step || rows.length === 0 || isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return;
      const before = rows.findIndex((row) => keyOf(row) === chosen.value);
      const next = Math.max(0, Math.min(rows.length - 1, before + step));
      chosen.value = keyOf(rows[next] as T);
      show(next);
      requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(".row.chosen a")?.focus({ preventScroll: true }));
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [rows, linkOf]);
  return chosen.value;
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
        (column.head ?? column.name)
      )}
    </div>
  );
}

const isContent = <T,>(column: Column<T>): boolean => !column.kind;

const cellClass = <T,>(column: Column<T>): string =>
  ["cell", column.kind, column.isMinor && "minor", column.isNumber && "number"].filter(Boolean).join(" ");

/** The rows in view of a scrolling element, as a Virtualizer; the component is drawn again when they change. */
function useRows(scroller: { current: HTMLDivElement | null }, count: number): Virtualizer<HTMLDivElement, Element> {
  const drawn = useSignal(0);
  void drawn.value;
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: OVERSCAN,
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
