// Amounts and times in words: ages, durations, quantities of Kubernetes, counts.
const SUFFIXES: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** The number that a quantity such as `250m`, `1e3` or `2Gi` stands for; NaN if it is none. */
export function parseQuantity(text: string): number {
  const found = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/.exec(text);
  return found ? Number(found[1]) * (SUFFIXES[found[2] ?? ""] ?? NaN) : NaN;
}

/** Bytes in binary units: `252 GiB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${trimNumber(bytes)} ${units[unit] ?? ""}`;
}

/** An amount of a resource in the unit that people use for it: `1.5 CPUs`, `16 GiB`, `8`. */
export function formatResource(resource: string, amount: number): string {
  if (resource === "memory" || resource.includes("storage") || resource.startsWith("hugepages-")) return formatBytes(amount);
  return trimNumber(amount);
}

const trimNumber = (value: number): string =>
  value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });

/** A span of time in at most two units: `46h` is `1d 22h`. Milliseconds in. */
export function formatDuration(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0s";
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count}${unit}`)
    .join(" ");
}

export const formatCount = (count: number): string => count.toLocaleString("en");

/** The time of day, with the date if it is another day than `now`. By hand: a row of a list has two, and Intl takes 50 times as long. */
export function formatTime(time: string | number | Date, now: number = Date.now()): string {
  const at = new Date(time);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const today = new Date(now);
  const isToday =
    today.getDate() === at.getDate() && today.getMonth() === at.getMonth() && today.getFullYear() === at.getFullYear();
  return isToday ? clock : `${day} ${clock}`;
}

const two = (value: number): string => String(value).padStart(2, "0");
