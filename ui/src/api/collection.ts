// A live copy of a collection: listed page by page, then kept by a watch. Changes reach the page once a frame.
import { type Signal, signal } from "@preact/signals";
import { signOut } from "../session";
import { ApiError, request, send } from "./client";
import { linesOf } from "./lines";
import { type Resource, pathOf } from "./resources";
import { untilShown, whileShown } from "./shown";
import type { KubernetesObject } from "./types";

export interface Selection {
  namespace?: string | undefined;
  labelSelector?: string | undefined;
  fieldSelector?: string | undefined;
}

export type CollectionState = "loading" | "live" | "stale" | "refused";
/** What a flush has changed: UIDs, or null for all. */
export type Change = ReadonlySet<string> | null;

export interface Collection<T> {
  /** The objects by UID: a new view for each frame in which something changed. It shows the newest objects. */
  readonly items: Signal<ReadonlyMap<string, T>>;
  /** `loading` until the list is complete; `stale` while the watch is interrupted; `refused` if the viewer may not read it. */
  readonly state: Signal<CollectionState>;
  /** What went wrong, for people; empty if nothing did. */
  readonly problem: Signal<string>;
  /** Whether there are more objects than `MOST`, which are not held. */
  readonly truncated: Signal<boolean>;
  /** How many there are, as the server says while it lists them. */
  readonly expected: Signal<number>;
  /** Call `listener` before `items` changes; returns a function that ends that. */
  onChange(listener: (change: Change, items: ReadonlyMap<string, T>) => void): () => void;
  stop(): void;
}

export const MOST = 100_000;
const PAGE = 500;
const RETRY_MS = [250, 1_000, 3_000, 10_000];
// A frame of a large collection costs milliseconds: fewer of them, and still well within what feels immediate.
const MANY = 20_000;
const PAUSE_MS = 100;

interface ListAnswer<T> {
  metadata: { resourceVersion: string; continue?: string; remainingItemCount?: number };
  items: T[] | null;
}

interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T & { code?: number; message?: string };
}

/** Start to follow a collection. `trim` drops the parts of an object that the caller does not read, to save memory. */
export function follow<T extends KubernetesObject>(resource: Resource, selection: Selection = {}, trim?: (object: T) => T): Collection<T> {
  const made = new Follower<T>(resource, selection, trim ?? ((object) => object));
  void made.run();
  return made;
}

class Follower<T extends KubernetesObject> implements Collection<T> {
  readonly items: Signal<ReadonlyMap<string, T>>;
  readonly state = signal<CollectionState>("loading");
  readonly problem = signal("");
  readonly truncated = signal(false);
  readonly expected = signal(0);
  private readonly stopping = new AbortController();
  private readonly listeners = new Set<(change: Change, items: ReadonlyMap<string, T>) => void>();
  private current = new Map<string, T>();
  private changed: Set<string> | null = new Set();
  private isScheduled = false;
  private arrivedAt = 0;

  constructor(
    private readonly resource: Resource,
    private readonly selection: Selection,
    private readonly trim: (object: T) => T,
  ) {
    this.items = signal<ReadonlyMap<string, T>>(new View(this.current));
  }

  stop(): void {
    this.stopping.abort();
  }

  onChange(listener: (change: Change, items: ReadonlyMap<string, T>) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  async run(): Promise<void> {
    const stop = this.stopping.signal;
    let revision = "";
    let failures = 0;
    while (!stop.aborted) {
      const shown = whileShown();
      try {
        if (!revision) revision = await this.list();
        revision = await this.watch(revision, AbortSignal.any([stop, shown.signal]), () => {
          failures = 0;
          this.state.value = "live";
          this.problem.value = "";
        });
      } catch (error) {
        if (stop.aborted) return;
        if (error instanceof Interrupted) revision = error.revision;
        if (!shown.signal.aborted) {
          const cause = error instanceof Interrupted ? error.reason : error;
          if (this.isRefused(cause)) return;
          if (cause instanceof ApiError && (cause.status === 410 || cause.status === 504)) revision = "";
          await pause(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)] ?? 0, stop);
        }
      } finally {
        shown.release();
      }
      await untilShown(stop);
    }
  }

  private async list(): Promise<string> {
    const listed = new Map<string, T>();
    const isFirst = this.current.size === 0;
    if (isFirst) this.current = listed;
    let next: string | undefined;
    let revision = "";
    do {
      const page: Record<string, string> = { limit: String(PAGE) };
      if (next) page["continue"] = next;
      const answer: ListAnswer<T> = await request(this.path(page), { signal: this.stopping.signal });
      for (const each of answer.items ?? []) listed.set(each.metadata.uid, this.take(each));
      if (isFirst) for (const each of answer.items ?? []) this.note(each.metadata.uid);
      next = answer.metadata.continue;
      this.expected.value = listed.size + (answer.metadata.remainingItemCount ?? (next ? MOST : 0));
      revision = answer.metadata.resourceVersion;
      this.truncated.value = Boolean(next) && listed.size >= MOST;
    } while (next && listed.size < MOST);
    this.current = listed;
    if (!isFirst) this.changed = null;
    this.schedule();
    return revision;
  }

  /** Follow the watch until it ends; returns the revision to go on from. */
  private async watch(from: string, stop: AbortSignal, onAlive: () => void): Promise<string> {
    let revision = from;
    try {
      const path = this.path({ watch: "1", resourceVersion: from, allowWatchBookmarks: "true" });
      const answer = await send(path, { signal: stop });
      onAlive();
      for await (const line of linesOf(answer)) revision = this.apply(JSON.parse(line) as WatchEvent<T>);
      return revision;
    } catch (error) {
      throw new Interrupted(revision, error);
    }
  }

  private apply({ type, object }: WatchEvent<T>): string {
    if (type === "ERROR") throw new ApiError(object.code ?? 500, "", object.message ?? "the watch ended");
    const { uid, resourceVersion } = object.metadata;
    if (type === "BOOKMARK") return resourceVersion;
    if (type === "DELETED") this.current.delete(uid);
    else if (this.current.size < MOST || this.current.has(uid)) this.current.set(uid, this.take(object));
    this.note(uid);
    return resourceVersion;
  }

  /** The object without what no page reads: it is often the largest part. */
  private take(object: T): T {
    delete (object.metadata as { managedFields?: unknown }).managedFields;
    return this.trim(object);
  }

  private note(uid: string): void {
    this.changed?.add(uid);
    this.schedule();
  }

  private schedule(): void {
    if (this.isScheduled || this.stopping.signal.aborted) return;
    this.isScheduled = true;
    this.arrivedAt = performance.now();
    const flush = (): void => this.flush();
    if (document.hidden) window.setTimeout(flush, PAUSE_MS);
    else if (this.current.size > MANY) window.setTimeout(() => requestAnimationFrame(flush), PAUSE_MS);
    else requestAnimationFrame(flush);
  }

  private flush(): void {
    this.isScheduled = false;
    const change = this.changed;
    this.changed = new Set();
    const view = new View(this.current);
    for (const listener of this.listeners) listener(change, view);
    this.items.value = view;
    performance.clearMeasures(SHOWN);
    performance.measure(SHOWN, { start: this.arrivedAt, detail: this.resource.plural });
  }

  /** Whether the viewer may not read this; if not, the problem is temporary. */
  private isRefused(error: unknown): boolean {
    this.problem.value = describe(error);
    if (error instanceof ApiError && error.status === 401) signOut();
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
      this.state.value = "refused";
      return true;
    }
    if (this.state.value !== "loading") this.state.value = "stale";
    return false;
  }

  private path(more: Record<string, string>): string {
    const { labelSelector, fieldSelector, namespace } = this.selection;
    const given = Object.entries({ labelSelector, fieldSelector, ...more });
    const query = new URLSearchParams(given.filter((each): each is [string, string] => Boolean(each[1])));
    return `${pathOf(this.resource, namespace)}?${query}`;
  }
}

/** Entry in the browser's timeline: from the arrival of a change to the frame that shows it. */
const SHOWN = "jobplane:shown";

/** A watch that broke off, and how far it had come. */
class Interrupted extends Error {
  constructor(
    readonly revision: string,
    readonly reason: unknown,
  ) {
    super("the watch broke off");
  }
}

/** The same map as another object, so that signals tell a change without a copy of 100,000 entries. */
class View<T> implements ReadonlyMap<string, T> {
  constructor(private readonly map: ReadonlyMap<string, T>) {}
  get size(): number {
    return this.map.size;
  }
  get(key: string): T | undefined {
    return this.map.get(key);
  }
  has(key: string): boolean {
    return this.map.has(key);
  }
  forEach(callback: (value: T, key: string, map: ReadonlyMap<string, T>) => void): void {
    this.map.forEach((value, key) => callback(value, key, this));
  }
  entries(): MapIterator<[string, T]> {
    return this.map.entries();
  }
  keys(): MapIterator<string> {
    return this.map.keys();
  }
  values(): MapIterator<T> {
    return this.map.values();
  }
  [Symbol.iterator](): MapIterator<[string, T]> {
    return this.map.entries();
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
