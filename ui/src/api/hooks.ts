// Hooks of components: a live collection, one live object, the time, and what the viewer may do.
import { type Signal, signal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { token } from "../session";
import { request } from "./client";
import { type Collection, type Selection, follow } from "./collection";
import type { Resource } from "./resources";
import type { KubernetesObject } from "./types";

/** Follow a collection for as long as the component is shown. A new selection starts anew. */
export function useCollection<T extends KubernetesObject>(
  resource: Resource,
  selection: Selection = {},
  trim?: (object: T) => T,
): Collection<T> {
  const key = JSON.stringify([resource.plural, selection]);
  const collection = useMemo(() => follow<T>(resource, selection, trim), [key]);
  useEffect(() => () => collection.stop(), [collection]);
  return collection;
}

const MANY = 5_000;
const CALM_MS = 500;

/** The objects of a collection for sums over all of them: at once if they are few, else twice a second at most. */
export function useCalm<T>(items: Signal<ReadonlyMap<string, T>>): ReadonlyMap<string, T> {
  const calm = useSignal(items.peek());
  useEffect(() => {
    let timer = 0;
    const end = items.subscribe((view) => {
      if (view.size <= MANY) calm.value = view;
      else if (!timer) {
        timer = window.setTimeout(() => {
          timer = 0;
          calm.value = items.peek();
        }, CALM_MS);
      }
    });
    return () => {
      end();
      clearTimeout(timer);
    };
  }, [items]);
  return calm.value;
}

export interface LiveObject<T> {
  /** The object; null once it is known that there is none. */
  readonly object: T | null | undefined;
  readonly problem: string;
}

/** Follow one object by name. */
export function useObject<T extends KubernetesObject>(resource: Resource, namespace: string | undefined, name: string): LiveObject<T> {
  const collection = useCollection<T>(resource, { namespace, fieldSelector: `metadata.name=${name}` });
  const [first] = collection.items.value.values();
  const isKnown = collection.state.value !== "loading";
  return { object: first ?? (isKnown ? null : undefined), problem: collection.problem.value };
}

/** The time, in milliseconds; ticks once a second for all components together. */
export const now: Signal<number> = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

export interface Action {
  verb: string;
  group?: string;
  resource: string;
  subresource?: string;
  namespace?: string | undefined;
  name?: string;
}

const answers = new Map<string, Promise<boolean>>();

/** Ask whether the viewer may do something (SelfSubjectAccessReview); asked once for each action and token. */
export function may(action: Action): Promise<boolean> {
  const key = JSON.stringify([token.value, action]);
  const asked = answers.get(key) ?? review(action);
  answers.set(key, asked);
  return asked;
}

async function review(action: Action): Promise<boolean> {
  const body = {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    spec: { resourceAttributes: action },
  };
  const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
  try {
    return (await request<{ status: { allowed: boolean } }>(path, { method: "POST", body })).status.allowed;
  } catch {
    return false;
  }
}

/** Whether the viewer may do something; false until that is known. */
export function useMay(action: Action): boolean {
  const allowed = useSignal(false);
  const key = JSON.stringify(action);
  useEffect(() => {
    let isShown = true;
    void may(action).then((answer) => {
      if (isShown) allowed.value = answer;
    });
    return () => {
      isShown = false;
    };
  }, [key]);
  return allowed.value;
}
