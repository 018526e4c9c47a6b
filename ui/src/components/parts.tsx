// Small parts that all pages share: status, age, bar, panel, and what is shown instead of an empty list.
import type { ComponentChildren } from "preact";
import { now } from "../api/hooks";
import { formatDuration, formatMoment } from "../job/times";

export type Tone = "ok" | "bad" | "warn" | "info" | "muted";

/** A coloured dot and its word: the colour is never the only sign. */
export function Status({ tone, children, title }: { tone: Tone; children: ComponentChildren; title?: string | undefined }) {
  return (
    <span class={`status ${tone}`} title={title}>
      <i aria-hidden="true" />
      {children}
    </span>
  );
}

/** The time since, counting; the moment itself as its title. */
export function Age({ since, until }: { since: string | undefined; until?: string | undefined }) {
  if (!since) return <span class="muted">–</span>;
  const [start, end] = [Date.parse(since), until ? Date.parse(until) : now.value];
  return <time dateTime={since} title={formatMoment(start)}>{formatDuration(end - start)}</time>;
}

/** How much of something is used: a bar with its words. `value` and `most` are in the same unit. */
export function Bar({ value, most, label, tone = "info" }: { value: number; most: number; label: string; tone?: Tone }) {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  const filled = share > 0 ? `${Math.max(1, share * 100)}%` : "0%";
  return <span class={`bar ${tone}`} role="img" aria-label={label} title={label} style={{ "--filled": filled }} />;
}

/** A titled part of a page. */
export function Panel({ title, action, children }: { title: string; action?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="panel" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {action}
      </header>
      {children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="title">{title}</p>
      {children}
    </div>
  );
}

/** A line that says what went wrong; nothing while all is well. */
export function Problem({ children }: { children: string }) {
  return children ? (
    <p class="problem" role="alert">
      {children}
    </p>
  ) : null;
}

const ENDING = 10;

/** A name whose end tells it from others: if there is no room, its middle is left out. Copied, it is whole. */
export function Ending({ text }: { text: string }) {
  if (text.length < 2 * ENDING) return <>{text}</>;
  return (
    <span class="ending" title={text}>
      <span>{text.slice(0, -ENDING)}</span>
      {text.slice(-ENDING)}
    </span>
  );
}
