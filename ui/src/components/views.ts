// Saved views as they are kept: pure, and unimpressed by whatever else may stand there.
export interface View {
  /** The list, such as `/jobs`, and the query of its address. */
  readonly path: string;
  readonly name: string;
  readonly query: string;
}

/** The views in a text that this page, or something else, has written. */
export function readViews(text: string | null): View[] {
  try {
    const read: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(read) ? read.filter(isView) : [];
  } catch {
    return [];
  }
}

const isView = (each: unknown): each is View =>
  typeof each === "object" && each !== null && ["path", "name", "query"].every((key) => typeof (each as Record<string, unknown>)[key] === "string");

/** With one more; it replaces the one of that name. */
export const withView = (views: readonly View[], view: View): View[] =>
  [...withoutView(views, view), view].sort((a, b) => a.name.localeCompare(b.name));

export const withoutView = (views: readonly View[], { path, name }: View): View[] =>
  views.filter((each) => each.path !== path || each.name !== name);
