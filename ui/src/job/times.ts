/**
 * Moments and spans as people read them: "14:02:10", "3 min 5 s", "2 d ago".
 *
 * Called by every page. `now` is an argument everywhere; a zone is one of the tz database, and the viewer's own by default.
 */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Milliseconds since 1970 of a time of the API; null for none. */
export function parseTime(text: string | null | undefined): number | null {
  if (!text) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}

/** A span in its two largest units: "12 s", "3 min 5 s", "2 h 5 min", "4 d 3 h". */
export function formatDuration(milliseconds: number): string {
  const span = Math.max(0, milliseconds);
  if (span < SECOND) return span === 0 ? "0 s" : "< 1 s";
  if (span < MINUTE) return `${Math.floor(span / SECOND)} s`;
  if (span < HOUR) return join(span, MINUTE, "min", SECOND, "s");
  if (span < DAY) return join(span, HOUR, "h", MINUTE, "min");
  return join(span, DAY, "d", HOUR, "h");
}

/** A span in its largest unit, for narrow columns: "5s", "3m", "2h", "4d". */
export function formatAge(milliseconds: number): string {
  const span = Math.max(0, milliseconds);
  if (span < 2 * MINUTE) return `${Math.floor(span / SECOND)}s`;
  if (span < 2 * HOUR) return `${Math.floor(span / MINUTE)}m`;
  if (span < 2 * DAY) return `${Math.floor(span / HOUR)}h`;
  return `${Math.floor(span / DAY)}d`;
}

/** Time of day to the second: "14:02:10". With the date, if it is not that of `now`: "24 Nov 14:02:10". */
export function formatClock(at: number, now: number, zone?: string): string {
  const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium", timeZone: zone }).format(at);
  return dayOf(at, zone) === dayOf(now, zone) ? clock : `${formatDay(at, now, zone)} ${clock}`;
}

/** A whole moment, for titles: "25 Nov 2026, 14:02:10 UTC". */
export function formatMoment(at: number, zone?: string): string {
  const style: Intl.DateTimeFormatOptions = { day: "numeric", month: "short", year: "numeric", timeZone: zone };
  const clock: Intl.DateTimeFormatOptions = {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
  };
  return new Intl.DateTimeFormat("en-GB", { ...style, ...clock }).format(at);
}

/** From now to then, in words: "in 5 min", "2 h ago", "now". */
export function formatDistance(at: number, now: number): string {
  const span = Math.abs(at - now);
  if (span < SECOND) return "now";
  const words = span < MINUTE ? formatDuration(span) : formatDuration(span).split(" ").slice(0, 2).join(" ");
  return at > now ? `in ${words}` : `${words} ago`;
}

function formatDay(at: number, now: number, zone?: string): string {
  const isThisYear = new Date(at).getUTCFullYear() === new Date(now).getUTCFullYear();
  const year = isThisYear ? undefined : "numeric";
  return new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year, timeZone: zone }).format(at);
}

function dayOf(at: number, zone?: string): string {
  return new Intl.DateTimeFormat("en-CA", { dateStyle: "short", timeZone: zone }).format(at);
}

function join(span: number, large: number, largeUnit: string, small: number, smallUnit: string): string {
  const rest = Math.floor((span % large) / small);
  const head = `${Math.floor(span / large)} ${largeUnit}`;
  return rest ? `${head} ${rest} ${smallUnit}` : head;
}
