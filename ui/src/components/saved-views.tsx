// Saved views of a list: names for the filters of an address, kept in this browser.
import { type Signal, signal, useSignal } from "@preact/signals";
import { Link } from "wouter-preact";
import { type View, readViews, withView, withoutView } from "./views";
import { Icon } from "./icon";
import { Popover } from "./popover";

const KEY = "jobplane.views";
const views: Signal<View[]> = signal(readViews(localStorage.getItem(KEY)));

// Another tab has saved or deleted one.
addEventListener("storage", (event) => {
  if (event.key === KEY) views.value = readViews(event.newValue);
});

/** What this tab read may be old: another one may have written meanwhile. */
function change(edit: (before: View[]) => View[]): void {
  views.value = edit(readViews(localStorage.getItem(KEY)));
  localStorage.setItem(KEY, JSON.stringify(views.value));
}

/** `query` is what the address asks for now. */
export function SavedViews({ path, query }: { path: string; query: string }) {
  const anchor = useSignal<HTMLElement | null>(null);
  const own = views.value.filter((each) => each.path === path);
  const current = own.find((each) => each.query === query);
  if (own.length === 0 && !query) return null;
  const close = (): void => void (anchor.value = null);
  return (
    <>
      <button type="button" class="views" aria-haspopup="dialog" onClick={(event) => (anchor.value = event.currentTarget)}>
        <Icon name="views" />
        {current?.name ?? "Views"}
      </button>
      {anchor.value && (
        <Popover role="dialog" label="Saved views" anchor={anchor.value} onClose={close}>
          {own.map((each) => (
            <div class="view" key={each.name}>
              <Link href={`${path}?${each.query}`} aria-current={each === current ? "page" : undefined} onClick={close}>
                {each.name}
              </Link>
              <button type="button" class="quiet" aria-label={`Delete the view ${each.name}`} onClick={() => change((all) => withoutView(all, each))}>
                <Icon name="close" />
              </button>
            </div>
          ))}
          {query && !current && <SaveForm onSave={(name) => change((all) => withView(all, { path, name, query }))} onClose={close} />}
          {!query && <p class="muted">Choose filters to save another view.</p>}
        </Popover>
      )}
    </>
  );
}

function SaveForm({ onSave, onClose }: { onSave: (name: string) => void; onClose: () => void }) {
  const name = useSignal("");
  const save = (event: Event): void => {
    event.preventDefault();
    if (!name.value.trim()) return;
    onSave(name.value.trim());
    onClose();
  };
  return (
    <form onSubmit={save}>
      <label>
        <span>Save these filters as</span>
        <input type="text" maxLength={60} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </label>
      <button type="submit" class="primary" disabled={!name.value.trim()}>
        Save
      </button>
    </form>
  );
}
