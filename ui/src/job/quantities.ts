/**
 * Quantities of resources as people read them: "264212084Ki" is "252 GiB", "1500m" CPUs are "1.5", 64002 is "64,002".
 *
 * Called by every page that shows requests, capacity or usage. Units of memory are binary, as Kubernetes counts them.
 */

const FACTORS: Record<string, number> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};
const QUANTITY = /^([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkKMGTPE]i?)|[eE]([+-]?\d+))?$/;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** The number that a quantity stands for; NaN if the text is no quantity. */
export function parseQuantity(text: string | number | undefined | null): number {
  const found = QUANTITY.exec(String(text ?? ""));
  if (!found) return NaN;
  const factor = found[3] === undefined ? FACTORS[found[2] ?? ""] : 10 ** Number(found[3]);
  return factor === undefined ? NaN : Number(found[1]) * factor;
}

/** Bytes with at most three digits that count: "252 GiB", "1.5 MiB". */
export function formatBytes(bytes: number): string {
  if (!Number.isFinite(bytes)) return "–";
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${bytes < 0 ? "-" : ""}${trimNumber(value, unit === 0 ? 0 : undefined)} ${UNITS[unit]}`;
}

/** CPUs: "1.5", "0.25", "12m" below a hundredth. */
export function formatCpu(cpus: number): string {
  if (!Number.isFinite(cpus)) return "–";
  if (cpus !== 0 && Math.abs(cpus) < 0.01) return `${trimNumber(cpus * 1000)}m`;
  return trimNumber(cpus, Math.abs(cpus) < 10 ? 2 : 1);
}

/** An amount of a resource by the resource's own unit. */
export function formatAmount(resource: string, amount: number): string {
  if (resource === "cpu") return formatCpu(amount);
  if (isBytes(resource)) return formatBytes(amount);
  return Number.isFinite(amount) ? trimNumber(amount, 2) : "–";
}

/** A quantity, as text of an object, by the resource's own unit; the text itself if it is no quantity. */
export function formatQuantity(resource: string, text: string | undefined): string {
  const amount = parseQuantity(text);
  return Number.isNaN(amount) ? (text ?? "–") : formatAmount(resource, amount);
}

/** Name of a resource in a sentence. */
export function nameResource(resource: string): string {
  if (resource === "cpu") return "CPU";
  return resource === "ephemeral-storage" ? "disk" : resource;
}

function isBytes(resource: string): boolean {
  return resource === "memory" || resource.endsWith("storage") || resource.startsWith("hugepages-");
}

/** By the most places after the point. To make a format takes much longer than to use it. */
const formatsOfNumbers = [0, 1, 2].map((places) => new Intl.NumberFormat("en", { maximumFractionDigits: places }));

/** A number of things: "1,001". */
export const formatCount = (count: number): string => trimNumber(count, 0);

function trimNumber(value: number, digits?: number): string {
  const places = digits ?? (value >= 100 ? 0 : value >= 10 ? 1 : 2);
  return formatsOfNumbers[places]?.format(value) ?? String(value);
}
