// The grid of an Indexed Job: one cell an index, drawn on a canvas so that thousands of cells stay smooth.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { type GridShape, STATES, countStates, indexAt, shapeGrid } from "../job/indexes";
import { scheme } from "../theme";
import { formatCount } from "../job/quantities";

interface Props {
  states: Uint8Array;
  chosen: number | null;
  onChoose: (index: number | null) => void;
}

export function IndexGrid({ states, chosen, onChoose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  const pointed = useSignal<number | null>(null);
  const count = states.length;
  const shape = shapeGrid(count, width.value || 600);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => (width.value = element.clientWidth));
    observer.observe(element);
    width.value = element.clientWidth;
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!canvas.current || !width.value) return undefined;
    const frame = requestAnimationFrame(() => canvas.current && draw(canvas.current, shape, states, chosen));
    return () => cancelAnimationFrame(frame);
  }, [states, width.value, chosen, scheme.value]);

  const find = (event: MouseEvent): number | null => indexAt(shape, count, event.offsetX, event.offsetY);
  const shown = pointed.value ?? chosen;
  return (
    <div class="index-grid">
      <Legend states={states} />
      <div class="index-cells" ref={box}>
        <canvas
          ref={canvas}
          role="slider"
          tabIndex={0}
          aria-label="Index"
          aria-valuemin={0}
          aria-valuemax={Math.max(0, count - 1)}
          aria-valuenow={chosen ?? 0}
          aria-valuetext={chosen === null ? "no index chosen" : nameIndex(states, chosen)}
          data-columns={shape.columns}
          data-pitch={shape.cell + shape.gap}
          onClick={(event) => onChoose(find(event))}
          onMouseMove={(event) => (pointed.value = find(event))}
          onMouseLeave={() => (pointed.value = null)}
          onKeyDown={(event) => {
            const next = step(event.key, chosen, shape, count);
            if (next === undefined) return;
            event.preventDefault();
            event.stopPropagation();
            pointed.value = null;
            onChoose(next);
          }}
        />
      </div>
      <p class="index-shown" aria-live="polite" data-testid="index-shown">
        {shown === null ? "Choose a cell to see its attempts." : nameIndex(states, shown)}
      </p>
    </div>
  );
}

function Legend({ states }: { states: Uint8Array }) {
  const counts = countStates(states);
  return (
    <ul class="swatches" aria-label="States of indexes">
      {STATES.filter((state) => counts[state] > 0).map((state) => (
        <li key={state}>
          <i class={`swatch ${state}`} aria-hidden="true" />
          <b>{formatCount(counts[state])}</b> {state}
        </li>
      ))}
    </ul>
  );
}

function nameIndex(states: Uint8Array, index: number): string {
  return `Index ${index}: ${STATES[states[index] ?? 0]}`;
}

/** Where a key leads from a cell; undefined if the key is none of the grid's. */
function step(key: string, from: number | null, shape: GridShape, count: number): number | null | undefined {
  if (key === "Escape") return null;
  const steps: Record<string, number> = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: shape.columns,
    ArrowUp: -shape.columns,
    Home: -count,
    End: count,
  };
  const by = steps[key];
  return by === undefined ? undefined : Math.max(0, Math.min(count - 1, from === null ? 0 : from + by));
}

function draw(canvas: HTMLCanvasElement, shape: GridShape, states: Uint8Array, chosen: number | null): void {
  const pitch = shape.cell + shape.gap;
  const [width, height] = [shape.columns * pitch - shape.gap, shape.rows * pitch - shape.gap];
  const scale = Math.min(devicePixelRatio || 1, 16_000 / Math.max(width, height));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  STATES.forEach((name, state) => drawState(context, shape, states, state, style.getPropertyValue(`--index-${name}`)));
  if (chosen === null || chosen >= states.length) return;
  context.strokeStyle = style.getPropertyValue("--text");
  context.lineWidth = 2;
  context.strokeRect(
    (chosen % shape.columns) * pitch,
    Math.floor(chosen / shape.columns) * pitch,
    shape.cell,
    shape.cell,
  );
}

/** All cells of one state as one path; failed ones have a cross, so that colour is not the only sign. */
function drawState(
  context: CanvasRenderingContext2D,
  shape: GridShape,
  states: Uint8Array,
  state: number,
  colour: string,
): void {
  const pitch = shape.cell + shape.gap;
  const cells = new Path2D();
  const marks = new Path2D();
  for (let index = 0; index < states.length; index += 1) {
    if (states[index] !== state) continue;
    const [x, y] = [(index % shape.columns) * pitch, Math.floor(index / shape.columns) * pitch];
    if (shape.cell >= 16) cells.roundRect(x, y, shape.cell, shape.cell, 3);
    else cells.rect(x, y, shape.cell, shape.cell);
    const inset = shape.cell * 0.3;
    marks.moveTo(x + inset, y + inset);
    marks.lineTo(x + shape.cell - inset, y + shape.cell - inset);
    marks.moveTo(x + shape.cell - inset, y + inset);
    marks.lineTo(x + inset, y + shape.cell - inset);
  }
  context.fillStyle = colour;
  context.fill(cells);
  if (STATES[state] !== "failed" || shape.cell < 10) return;
  context.strokeStyle = "#fff";
  context.lineWidth = shape.cell >= 16 ? 1.8 : 1.2;
  context.stroke(marks);
}
