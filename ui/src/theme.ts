// Light, dark, or as the system has it: kept in this browser.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "jobplane.theme";
const stored = localStorage.getItem(KEY);

export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

export function applyTheme(): void {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
}

/** Go on to the next theme: system, light, dark. */
export function nextTheme(): void {
  theme.value = theme.value === "system" ? "light" : theme.value === "light" ? "dark" : "system";
  localStorage.setItem(KEY, theme.value);
  applyTheme();
}
