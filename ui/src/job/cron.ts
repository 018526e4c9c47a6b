/**
 * Schedules of CronJobs: when one runs next. Reads what the API reads: five fields, `@daily`, `@every 5m`, `TZ=`, and `H`.
 *
 * Called by the CronJob pages. `H` is resolved first, by a hash of the CronJob's namespace and name, as the controllers do.
 */

export interface Schedule {
  next(after: number): number | null;
}

const BOUNDS: [number, number][] = [
  [0, 59],
  [0, 23],
  [1, 31],
  [1, 12],
  [0, 6],
];
const NAMES: Record<number, string[]> = {
  3: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
  4: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};
const DESCRIPTORS: Record<string, string> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
};
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const LONGEST = 5 * 366 * 24 * HOUR;
const SAFE_DAY = 28;
const HASHED = /^H(?:\((\d+)-(\d+)\))?(?:\/(\d+))?$/;

/** The schedule without `H`: each becomes the number, or range with a step, that follows from the seed "NAMESPACE/NAME". */
export async function resolveHashes(text: string, seed: string): Promise<string> {
  const fields = text.trim().split(/\s+/);
  const zone = /^(CRON_)?TZ=/.test(fields[0] ?? "") ? fields.splice(0, 1) : [];
  if (fields.length !== 5) return text;
  const resolved = fields.map(async (field, place) => {
    const parts = field.split(",").map((part) => (part.startsWith("H") ? resolvePart(part, place, seed) : part));
    return (await Promise.all(parts)).join(",");
  });
  return [...zone, ...(await Promise.all(resolved))].join(" ");
}

/** The schedule that a text describes, in a zone unless it names its own; null if it describes none. */
export function parseSchedule(text: string, zone = "UTC"): Schedule | null {
  const found = /^(?:CRON_)?TZ=(\S+)\s+(.*)$/.exec(text.trim());
  const [ownZone, rest] = found ? [found[1] as string, found[2] as string] : [zone, text.trim()];
  const every = /^@every (.+)$/.exec(rest);
  if (every) return repeat(parseSpan(every[1] as string));
  const fields = (DESCRIPTORS[rest] ?? rest).split(/\s+/);
  if (fields.length !== 5) return null;
  const parsed = fields.map(parseField);
  if (parsed.some((each) => each === null)) return null;
  try {
    return new Cron(parsed as Field[], ownZone);
  } catch {
    return null; // no such zone
  }
}

/** The next `count` moments of a schedule. */
export function listNext(schedule: Schedule, after: number, count: number): number[] {
  const moments: number[] = [];
  for (let at: number | null = after; moments.length < count; moments.push(at)) {
    at = schedule.next(at);
    if (at === null) break;
  }
  return moments;
}

interface Field {
  values: Set<number>;
  star: boolean;
}

class Cron implements Schedule {
  private readonly clock: Intl.DateTimeFormat;

  constructor(
    private readonly fields: Field[],
    zone: string,
  ) {
    const numbers = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric" } as const;
    this.clock = new Intl.DateTimeFormat("en-GB", { ...numbers, hourCycle: "h23", timeZone: zone });
  }

  /** Steps over days and hours that do not match, then by minutes. */
  next(after: number): number | null {
    let at = Math.floor(after / MINUTE) * MINUTE + MINUTE;
    while (at - after < LONGEST) {
      const [day, month, year, hour, minute] = this.read(at);
      if (!this.fallsOn(year, month, day)) at += Math.max(1, 23 - hour) * HOUR - minute * MINUTE;
      else if (!this.has(1, hour)) at += HOUR - minute * MINUTE;
      else if (!this.has(0, minute)) at += MINUTE;
      else return at;
    }
    return null;
  }

  private read(at: number): [number, number, number, number, number] {
    return this.clock.format(at).match(/\d+/g)?.map(Number) as [number, number, number, number, number];
  }

  private fallsOn(year: number, month: number, day: number): boolean {
    if (!this.has(3, month)) return false;
    const weekday = new Date(Date.UTC(year, month - 1, day)).getUTCDay();
    const [byDate, byWeekday] = [this.has(2, day), this.has(4, weekday)];
    return this.fields[2]?.star || this.fields[4]?.star ? byDate && byWeekday : byDate || byWeekday;
  }

  private has(field: number, value: number): boolean {
    return (this.fields[field] as Field).values.has(value);
  }
}

function parseField(text: string, place: number): Field | null {
  const field: Field = { values: new Set(), star: false };
  for (const part of text.split(",").filter(Boolean)) {
    const found = /^(\*|\?|\w+)(?:-(\w+))?(?:\/(\d+))?$/.exec(part);
    if (!found) return null;
    const [low, high] = BOUNDS[place] as [number, number];
    const isStar = found[1] === "*" || found[1] === "?";
    const first = isStar ? low : readValue(found[1] as string, place);
    const last = found[2] ? readValue(found[2], place) : isStar || found[3] ? high : first;
    const step = Number(found[3] ?? 1);
    if (!(first >= low && last <= high && first <= last && step > 0)) return null;
    for (let value = first; value <= last; value += step) field.values.add(value);
    field.star ||= isStar && step === 1;
  }
  return field.values.size ? field : null;
}

function readValue(text: string, place: number): number {
  const name = NAMES[place]?.indexOf(text.toLowerCase()) ?? -1;
  return name < 0 ? Number(text) : name + (BOUNDS[place]?.[0] ?? 0);
}

function parseSpan(text: string): number {
  const units: Record<string, number> = { h: HOUR, m: MINUTE, s: 1000, ms: 1 };
  let span = 0;
  for (const [, number, unit] of text.matchAll(/([\d.]+)(ms|h|m|s)/g))
    span += Number(number) * (units[unit as string] ?? 0);
  return Math.max(1000, Math.floor(span / 1000) * 1000);
}

function repeat(span: number): Schedule {
  return { next: (after) => Math.floor(after / 1000) * 1000 + span };
}

async function resolvePart(part: string, place: number, seed: string): Promise<string> {
  const found = HASHED.exec(part);
  const [bottom, top] = BOUNDS[place] as [number, number];
  if (!found) return part;
  const low = found[1] === undefined ? bottom : Number(found[1]);
  const high = found[2] === undefined ? (place === 2 ? SAFE_DAY : top) : Number(found[2]);
  const size = found[3] === undefined ? high - low + 1 : Number(found[3]);
  const first = low + Number((await hash(`${seed}#${place}`)) % BigInt(size || 1));
  return found[3] === undefined ? `${first}` : `${first}-${high}/${size}`;
}

/** The first eight bytes of the text's SHA-256, as a number. */
async function hash(text: string): Promise<bigint> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return new DataView(digest).getBigUint64(0);
}
