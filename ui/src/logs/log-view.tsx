// The lines of a log: only those in view are drawn. Follows the end until the reader scrolls away from it.
import {
  Virtualizer,
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
} from "@tanstack/virtual-core";
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { parseAnsi } from "./ansi";
import type { Line } from "./lines";

export const LINE_HEIGHT = 20;
const NEAR_END = 30;

interface Props {
  lines: readonly Line[];
  nameOf: ((source: string) => { label: string; place: number }) | null;
  isWrapped: boolean;
  hasTimes: boolean;
  isFollowing: boolean;
  onFollow: (isFollowing: boolean) => void;
  matches: ((line: string) => boolean) | null;
  /** The place of the line to show; a new object scrolls there again. */
  target: { place: number } | null;
  onLink: (line: Line) => void;
}

export function LogView(props: Props) {
  const { lines, isFollowing, onFollow, target } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const seen = useLines(scroller, lines.length, props.isWrapped);
  useLayoutEffect(() => {
    if (isFollowing && lines.length) seen.scrollToIndex(lines.length - 1, { align: "end" });
  }, [lines, lines.length, isFollowing, props.isWrapped]);
  useLayoutEffect(() => {
    if (target && target.place >= 0) seen.scrollToIndex(target.place, { align: "center" });
  }, [target]);
  useEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const leave = (event: Event): void => {
      if (event instanceof WheelEvent && event.deltaY >= 0) return;
      if (event instanceof KeyboardEvent && !["ArrowUp", "PageUp", "Home"].includes(event.key)) return;
      onFollow(false);
    };
    const kinds = ["wheel", "touchmove", "keydown"] as const;
    for (const kind of kinds) element.addEventListener(kind, leave, { passive: true });
    return () => kinds.forEach((kind) => element.removeEventListener(kind, leave));
  }, [onFollow]);
  const onScroll = (event: { currentTarget: HTMLElement }): void => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
    if (!isFollowing && lines.length && scrollHeight - scrollTop - clientHeight < NEAR_END && scrollTop > 0 && !target)
      onFollow(true);
  };
  return (
    <div
      class={props.isWrapped ? "log wrapped" : "log"}
      ref={scroller}
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label="Log"
      data-lines={lines.length}
      onScroll={onScroll}
    >
      <div class="log-body" style={{ height: `${seen.getTotalSize()}px` }}>
        {seen.getVirtualItems().map(({ index, start }) => {
          const line = lines[index];
          return (
            line && (
              <LogLine
                key={line.number}
                {...props}
                line={line}
                index={index}
                start={start}
                measure={props.isWrapped ? seen.measureElement : null}
              />
            )
          );
        })}
      </div>
    </div>
  );
}

interface LineProps extends Props {
  line: Line;
  index: number;
  start: number;
  measure: ((element: Element | null) => void) | null;
}

function LogLine({ line, index, start, measure, nameOf, hasTimes, matches, target, onLink }: LineProps) {
  const isFound = matches?.(line.text) === true;
  const classes = ["log-line", isFound && "found", target?.place === index && "target"].filter(Boolean).join(" ");
  const source = nameOf?.(line.source);
  return (
    <div class={classes} ref={measure} data-index={index} style={{ transform: `translateY(${start}px)` }}>
      <button
        type="button"
        class="log-number"
        tabIndex={-1}
        aria-label={`Link to line ${nameOf ? index + 1 : line.number}`}
        onClick={() => onLink(line)}
      >
        {nameOf ? index + 1 : line.number}
      </button>
      {source && <span class={`log-source source-${source.place % 6}`}>{source.label}</span>}
      {hasTimes && <time class="log-time">{line.time.slice(0, 23).replace("T", " ")}</time>}
      <span class="log-text">
        {parseAnsi(line.text).map((span, place) => (
          <span key={place} class={span.style || undefined}>
            {span.text}
          </span>
        ))}
      </span>
    </div>
  );
}

/** Lines in view, as a Virtualizer: of one height, or measured if they are wrapped. */
function useLines(
  scroller: { current: HTMLDivElement | null },
  count: number,
  isWrapped: boolean,
): Virtualizer<HTMLDivElement, Element> {
  const drawn = useSignal(0);
  void drawn.value;
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_HEIGHT,
    overscan: 20,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    measureElement,
    onChange: () => {
      drawn.value += 1;
    },
  };
  const rows = useMemo(() => new Virtualizer<HTMLDivElement, Element>(options), [isWrapped]);
  rows.setOptions(options);
  useLayoutEffect(() => rows._didMount(), [rows]);
  useLayoutEffect(() => rows._willUpdate());
  return rows;
}
