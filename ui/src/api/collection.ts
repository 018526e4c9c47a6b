// A live copy of a collection: listed page by page, then kept by a watch. Changes reach the page once a frame.
import { type Signal, signal } from "@preact/signals";
import { signOut } from "../session";
import { ApiError, request, send } from "./client";
import { type Resource, pathOf } from "./resources";
import type { KubernetesObject } from "./types";

export interface Selection {
  namespace?: string | undefined;
  labelSelector?: string | undefined;
  fieldSelector?: string | undefined;
}

export interface Collection<T> {
  /** The objects by UID: a new map for each frame in which something changed. */
  readonly items: Signal<ReadonlyMap<string, T>>;
  /** `loading` until the list is complete; `stale` while the watch is interrupted; `refused` if the viewer may not read it. */
  readonly state: Signal<"loading" | "live" | "stale" | "refused">;
  /** What went wrong, for people; empty if nothing did. */
  readonly problem: Signal<string>;
  /** Whether there are more objects than `MOST`, which are not held. */
  readonly truncated: Signal<boolean>;
  stop(): void;
}

export const MOST = 100_000;
const PAGE = 1_000;
const RETRY_MS = [250, 1_000, 3_000, 10_000];

interface ListAnswer<T> {
  metadata: { resourceVersion: string; continue?: string };
  items: T[] | null;
}

interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T & { code?: number; message?: string };
}

/** Start to follow a collection. `trim` drops the parts of an object that the caller does not read, to save memory. */
export function follow<T extends KubernetesObject>(
  resource: Resource,
  selection: Selection = {},
  trim: (object: T) => T = (object) => object,
): Collection<T> {
  const items = signal<ReadonlyMap<string, T>>(new Map());
  const state = signal<"loading" | "live" | "stale" | "refused">("loading");
  const problem = signal("");
  const truncated = signal(false);
  const stopping = new AbortController();
  let current = new Map<string, T>();
  let frame = 0;

  const flush = (): void => {
    frame = 0;
    items.value = new Map(current);
  };
  const changed = (): void => {
    if (!frame) frame = document.hidden ? window.setTimeout(flush, 100) : requestAnimationFrame(flush);
  };
  const query = (more: Record<string, string>): string => {
    const given = { labelSelector: selection.labelSelector, fieldSelector: selection.fieldSelector, ...more };
    const set = Object.entries(given).filter((each): each is [string, string] => Boolean(each[1]));
    return `${pathOf(resource, selection.namespace)}?${new URLSearchParams(set)}`;
  };

  async function list(): Promise<string> {
    const listed = new Map<string, T>();
    const isFirst = current.size === 0;
    if (isFirst) current = listed;
    let next: string | undefined;
    let revision = "";
    do {
      const path = query(next ? { limit: String(PAGE), continue: next } : { limit: String(PAGE) });
      const answer: ListAnswer<T> = await request(path, { signal: stopping.signal });
      for (const each of answer.items ?? []) listed.set(each.metadata.uid, trim(each));
      next = answer.metadata.continue;
      revision = answer.metadata.resourceVersion;
      if (isFirst) changed();
      truncated.value = Boolean(next) && listed.size >= MOST;
    } while (next && listed.size < MOST);
    current = listed;
    changed();
    return revision;
  }

  function apply(event: WatchEvent<T>): string {
    const { object } = event;
    if (event.type === "ERROR") throw new ApiError(object.code ?? 500, "", object.message ?? "the watch ended");
    if (event.type === "DELETED") current.delete(object.metadata.uid);
    else if (event.type !== "BOOKMARK") current.set(object.metadata.uid, trim(object));
    if (event.type !== "BOOKMARK") changed();
    return object.metadata.resourceVersion;
  }

  async function watch(from: string, onAlive: () => void): Promise<string> {
    const path = query({ watch: "1", resourceVersion: from, allowWatchBookmarks: "true" });
    const answer = await send(path, { signal: stopping.signal });
    let revision = from;
    onAlive();
    for await (const line of linesOf(answer)) revision = apply(JSON.parse(line) as WatchEvent<T>);
    return revision;
  }

  async function run(): Promise<void> {
    let revision = "";
    let failures = 0;
    while (!stopping.signal.aborted) {
      try {
        if (!revision) revision = await list();
        revision = await watch(revision, () => {
          failures = 0;
          state.value = "live";
          problem.value = "";
        });
      } catch (error) {
        if (stopping.signal.aborted) return;
        if (error instanceof ApiError && (error.status === 410 || error.status === 504)) revision = "";
        problem.value = describe(error);
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
          state.value = "refused";
          if (error.status === 401) signOut();
          return;
        }
        state.value = state.value === "loading" ? "loading" : "stale";
        await pause(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)] ?? 0, stopping.signal);
      }
    }
  }

  void run();
  return { items, state, problem, truncated, stop: () => stopping.abort() };
}

/** The lines of a streamed answer, as they arrive. */
export async function* linesOf(answer: Response): AsyncGenerator<string> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line) yield line;
    }
    if (rest) yield rest;
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function describe(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  return "The server does not answer. Trying again.";
}

function pause(milliseconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    stop.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
