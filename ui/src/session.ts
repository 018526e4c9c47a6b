// The viewer's session: a token, kept for this tab only, and who it stands for.
import { signal } from "@preact/signals";

const KEY = "jobplane.token";

export const token = signal<string | null>(sessionStorage.getItem(KEY));

/** Keep a token for this tab. It is not checked here: a request that it does not allow signs out again. */
export function signIn(value: string): void {
  sessionStorage.setItem(KEY, value);
  token.value = value;
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
  token.value = null;
}

/** Exchange the one-time code of a link that `jobplane up` printed (`/ui#signin=CODE`), if the address has one. */
export async function signInByLink(): Promise<string | null> {
  const code = /^#signin=([\w-]+)$/.exec(location.hash)?.[1];
  if (!code) return null;
  history.replaceState(null, "", location.pathname + location.search);
  const answer = await fetch("/ui/signin", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code }),
  });
  if (!answer.ok) return "This sign-in link was used before or is too old. Print a new one: jobplane page";
  signIn(((await answer.json()) as { token: string }).token);
  return null;
}
