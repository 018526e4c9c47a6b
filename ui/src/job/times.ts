/**
 * Moments and spans as people read them: "14:02:10", "3m 5s", "2d ago".
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

/** A span in its two largest units, without those that are zero: "12s", "3m 5s", "2h", "4d 3h". */
export function formatDuration(milliseconds: number): string {
  const [first, ...others] = partsOf(milliseconds);
  const next = others[0];
  return next && next[0] > 0 ? `${first.join("")} ${next.join("")}` : first.join("");
}

/** Time of day to the second: "14:02:10". With the date, if it is not that of `now`: "24 Nov 14:02:10". */
export function formatClock(at: number, now: number, zone?: string): string {
  const clock = formatWith({ timeStyle: "medium" }, at, zone);
  if (dayOf(at, zone) === dayOf(now, zone)) return clock;
  return `${formatWith(dayOf(at, zone).slice(-4) === dayOf(now, zone).slice(-4) ? DAY_STYLE : DATE_STYLE, at, zone)} ${clock}`;
}

/** A whole moment, for titles: "25 Nov 2026, 14:02:10 UTC". */
export function formatMoment(at: number, zone?: string): string {
  return formatWith(MOMENT_STYLE, at, zone);
}

/** From now to then, in words: "in 5m", "2h ago", "now". */
export function formatDistance(at: number, now: number): string {
  const span = Math.abs(at - now);
  if (span < SECOND) return "now";
  const words = partsOf(span)[0].join("");
  return at > now ? `in ${words}` : `${words} ago`;
}

type Part = [count: number, unit: string];

/** A span by units, from the largest that is not zero on. */
function partsOf(milliseconds: number): [Part, ...Part[]] {
  const span = Math.max(0, milliseconds);
  const [days, hours] = [Math.floor(span / DAY), Math.floor(span / HOUR) % 24];
  const [minutes, seconds] = [Math.floor(span / MINUTE) % 60, Math.floor(span / SECOND) % 60];
  if (days) return [[days, "d"], [hours, "h"]];
  if (hours) return [[hours, "h"], [minutes, "m"]];
  return minutes ? [[minutes, "m"], [seconds, "s"]] : [[seconds, "s"]];
}

const DAY_STYLE: Intl.DateTimeFormatOptions = { day: "numeric", month: "short" };
const DATE_STYLE: Intl.DateTimeFormatOptions = { ...DAY_STYLE, year: "numeric" };
const MOMENT_STYLE: Intl.DateTimeFormatOptions = {
  ...DATE_STYLE,
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
};
const dayOf = (at: number, zone?: string): string => formatWith({ dateStyle: "short" }, at, zone);

const formats = new Map<string, Intl.DateTimeFormat>();

/** Kept by style and zone: to make a format takes fifty times as long as to use it, and a list has hundreds of times. */
function formatWith(style: Intl.DateTimeFormatOptions, at: number, zone = ""): string {
  const key = `${Object.keys(style).join()} ${zone}`;
  const known = formats.get(key) ?? new Intl.DateTimeFormat("en-GB", { ...style, ...(zone && { timeZone: zone }) });
  formats.set(key, known);
  return known.format(at);
}
