// Keys of one page, such as `l` for logs. They rest while a field or a dialog has the focus, and after `g`.
import { useEffect, useRef } from "preact/hooks";
import { isTyping } from "./shortcuts";

/** Call a function for each key while the component is shown. */
export function useKeys(keys: Record<string, (() => void) | undefined>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = "";
    const onKey = (event: KeyboardEvent): void => {
      const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.repeat;
      const act = before === "g" ? undefined : latest.current[event.key];
      before = event.key;
      if (!act || !isPlain || isTyping(event) || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
