// The head of a page about one object: where it is, its name and state, what can be done, and its facts.
import type { ComponentChildren } from "preact";
import { Link } from "wouter-preact";
import type { Tone as StateTone } from "../job/state";
import { formatMoment } from "../job/times";
import { Empty, Status, type Tone } from "./parts";

const TONES: Record<StateTone, Tone> = { ok: "ok", bad: "bad", busy: "info", waiting: "warn", idle: "muted" };

interface HeadProps {
  section: string;
  sectionPath: string;
  namespace?: string | undefined;
  name: string;
  word?: string;
  tone?: StateTone;
  sentence?: string;
  actions?: ComponentChildren;
}

export function DetailHead({
  section,
  sectionPath,
  namespace,
  name,
  word,
  tone = "idle",
  sentence,
  actions,
}: HeadProps) {
  return (
    <header class="detail-head">
      <nav class="crumbs" aria-label="Where this is">
        <Link href={sectionPath}>{section}</Link>
        {namespace && (
          <>
            <span aria-hidden="true">/</span>
            <Link href={`${sectionPath}?namespace=${namespace}`}>{namespace}</Link>
          </>
        )}
      </nav>
      <div class="detail-title">
        <h1>{name}</h1>
        {word && (
          <span class={`badge ${TONES[tone]}`} data-testid="state">
            <Status tone={TONES[tone]}>{word}</Status>
          </span>
        )}
        <div class="actions">{actions}</div>
      </div>
      {sentence && (
        <p class="sentence" data-testid="sentence" aria-live="polite">
          {sentence}
        </p>
      )}
    </header>
  );
}

export type Fact = [name: string, value: ComponentChildren];

/** Names and values in a row that wraps; a fact without a value is left out. */
export function Facts({ facts }: { facts: Fact[] }) {
  const shown = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return (
    <dl class="facts">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A moment in words, with the whole of it as its title. */
export function Moment({ at, children }: { at: number | null; children: ComponentChildren }) {
  if (at === null) return <span class="muted">–</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={formatMoment(at)}>
      {children}
    </time>
  );
}

/** What is shown while an object is looked for, or when there is none. */
export function Absent({ object, what, children }: { object: unknown; what: string; children?: ComponentChildren }) {
  if (object === undefined) return <Empty title="Loading…" />;
  return (
    <div class="empty">
      <h1>There is no {what}</h1>
      {children}
    </div>
  );
}
