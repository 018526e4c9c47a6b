// Light, dark, or as the system has it: kept in this browser. The style sheet reads the outcome from the root element.
import { computed, effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "jobplane.theme";
const stored = localStorage.getItem(KEY);
const system = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => (isSystemDark.value = system.matches));

export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

/** What is shown: also where the system decides. */
export const scheme = computed(() =>
  theme.value === "system" ? (isSystemDark.value ? "dark" : "light") : theme.value,
);

/** Keep the root element's `data-theme` as the theme is. */
export function applyTheme(): void {
  effect(() => {
    document.documentElement.dataset["theme"] = scheme.value;
  });
}

/** Go on to the next theme: system, light, dark. */
export function nextTheme(): void {
  theme.value = theme.value === "system" ? "light" : theme.value === "light" ? "dark" : "system";
  localStorage.setItem(KEY, theme.value);
}
