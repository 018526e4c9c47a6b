// Data that cannot be watched: asked for again at an interval, while the page is seen.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request } from "./client";

/** The newest answer to a GET; undefined until there is one. `changed` asks again at once, at most once a second. */
export function usePolled<T>(path: string | null, milliseconds: number, changed: unknown = 0): T | undefined {
  const answer = useSignal<T | undefined>(undefined);
  useEffect(() => {
    if (path === null) return undefined;
    const stopping = new AbortController();
    const ask = async (): Promise<void> => {
      if (document.hidden) return;
      const got = await request<T>(path, { signal: stopping.signal }).catch(() => undefined);
      if (got !== undefined && !stopping.signal.aborted) answer.value = got;
    };
    const soon = setTimeout(() => void ask(), answer.value === undefined ? 0 : 1000);
    const timer = setInterval(() => void ask(), milliseconds);
    return () => {
      stopping.abort();
      clearTimeout(soon);
      clearInterval(timer);
    };
  }, [path, milliseconds, changed]);
  return path === null ? undefined : answer.value;
}

/** Answers to several GETs, by path, asked one after the other and again when `changed` differs. */
export function useAnswers<T>(paths: string[], changed: unknown): T[] {
  const answers = useSignal<T[]>([]);
  const key = paths.join(" ");
  useEffect(() => {
    const stopping = new AbortController();
    const ask = async (): Promise<void> => {
      const got: T[] = [];
      for (const path of paths) {
        const one = await request<T>(path, { signal: stopping.signal }).catch(() => undefined);
        if (stopping.signal.aborted) return;
        if (one !== undefined) got.push(one);
      }
      answers.value = got;
    };
    const soon = setTimeout(() => void ask(), 300);
    return () => {
      stopping.abort();
      clearTimeout(soon);
    };
  }, [key, changed]);
  return answers.value;
}
