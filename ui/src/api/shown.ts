// Whether this tab is seen. A browser opens six connections to a server, for all tabs together: hidden tabs give theirs back.
const GRACE_MS = 10_000;

/** A signal that aborts when the tab has been hidden for a while. */
export function whileShown(): { signal: AbortSignal; release: () => void } {
  const hidden = new AbortController();
  let timer = 0;
  const onChange = (): void => {
    clearTimeout(timer);
    if (document.hidden) timer = window.setTimeout(() => hidden.abort(), GRACE_MS);
  };
  document.addEventListener("visibilitychange", onChange);
  onChange();
  const release = (): void => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onChange);
  };
  return { signal: hidden.signal, release };
}

/** Wait until the tab is seen, or `stop` aborts. */
export function untilShown(stop: AbortSignal): Promise<void> {
  if (!document.hidden || stop.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      if (document.hidden && !stop.aborted) return;
      document.removeEventListener("visibilitychange", done);
      resolve();
    };
    document.addEventListener("visibilitychange", done);
    stop.addEventListener("abort", done);
  });
}
