// Keys that work on every page: `/` searches, `g` and a letter goes to a section, `?` lists the keys.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { Dialog } from "./dialogs";

const SECTIONS: Record<string, [string, string]> = {
  c: ["/", "Cluster"],
  j: ["/jobs", "Jobs"],
  r: ["/cronjobs", "CronJobs"],
  p: ["/pods", "Pods"],
  n: ["/nodes", "Nodes"],
  q: ["/queues", "Queues"],
  e: ["/events", "Events"],
  h: ["/history", "History"],
};

/** Whether a key is typed into a field, and so no shortcut. */
export const isTyping = (event: KeyboardEvent): boolean =>
  event.target instanceof HTMLElement && event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;

export function Shortcuts() {
  const [, go] = useLocation();
  const isOpen = useSignal(false);
  const isGoing = useRef(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const section = isGoing.current ? SECTIONS[event.key] : undefined;
      isGoing.current = event.key === "g";
      if (section) go(section[0]);
      else if (event.key === "?") isOpen.value = true;
      else if (event.key === "/") document.querySelector<HTMLInputElement>("input[type=search]")?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [go]);
  if (!isOpen.value) return null;
  return (
    <Dialog label="Keyboard shortcuts" onClose={() => (isOpen.value = false)}>
      <dl class="keys">
        <Key keys="/">search</Key>
        <Key keys="j k">next, previous row</Key>
        <Key keys="Enter">open the row</Key>
        <Key keys="x X">select the row, and all rows up to it</Key>
        <Key keys="m">actions on the row</Key>
        <Key keys="l y">log, YAML of what is open</Key>
        <Key keys="s r e">suspend or resume, rerun, edit and rerun</Key>
        <Key keys="t">trigger a CronJob; times in a log</Key>
        <Key keys="c x">cordon, drain a node</Key>
        <Key keys="d">delete, after a question</Key>
        <Key keys="f w p">follow, wrap, previous run of a log</Key>
        <Key keys="n N e">next, previous match, first error in a log</Key>
        {Object.entries(SECTIONS).map(([key, [, name]]) => (
          <Key key={key} keys={`g ${key}`}>
            {name}
          </Key>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </Dialog>
  );
}

function Key({ keys, children }: { keys: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>
        {keys.split(" ").map((each) => (
          <kbd key={each}>{each}</kbd>
        ))}
      </dt>
      <dd>{children}</dd>
    </div>
  );
}
