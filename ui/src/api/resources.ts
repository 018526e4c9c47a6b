// The resources that the page reads, and their paths.
export interface Resource {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
}

export const JOBS: Resource = { group: "batch", version: "v1", plural: "jobs", kind: "Job", namespaced: true };
export const CRONJOBS: Resource = { group: "batch", version: "v1", plural: "cronjobs", kind: "CronJob", namespaced: true };
export const PODS: Resource = { group: "", version: "v1", plural: "pods", kind: "Pod", namespaced: true };
export const NODES: Resource = { group: "", version: "v1", plural: "nodes", kind: "Node", namespaced: false };
export const EVENTS: Resource = { group: "", version: "v1", plural: "events", kind: "Event", namespaced: true };
export const NAMESPACES: Resource = { group: "", version: "v1", plural: "namespaces", kind: "Namespace", namespaced: false };
export const LOCALQUEUES: Resource = {
  group: "jobplane.dev",
  version: "v1",
  plural: "localqueues",
  kind: "LocalQueue",
  namespaced: true,
};

/** The path of a resource's collection, in one namespace or in all, or of one object. */
export function pathOf(resource: Resource, namespace?: string, name?: string): string {
  const root = resource.group ? `/apis/${resource.group}/${resource.version}` : `/api/${resource.version}`;
  const scope = resource.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${root}${scope}/${resource.plural}${name ? `/${encodeURIComponent(name)}` : ""}`;
}

export const apiVersionOf = (resource: Resource): string =>
  resource.group ? `${resource.group}/${resource.version}` : resource.version;
