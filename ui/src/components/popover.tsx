// What opens at a button, above everything else: a menu of actions, or a small form. Escape and a click elsewhere close it.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  label: string;
  anchor: HTMLElement;
  role: "menu" | "dialog";
  onClose: () => void;
  children: ComponentChildren;
}

const GAP = 4;
const FOCUSABLE = "a[href], button:not(:disabled), input";

export function Popover({ label, anchor, role, onClose, children }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const shown = box.current;
    if (!shown) return undefined;
    shown.showPopover();
    place(shown, anchor.getBoundingClientRect());
    shown.querySelector<HTMLElement>(FOCUSABLE)?.focus();
    return () => {
      if (document.activeElement === document.body || shown.contains(document.activeElement)) anchor.focus({ preventScroll: true });
    };
  }, [anchor]);
  const onKey = (event: KeyboardEvent): void => {
    event.stopPropagation(); // the list below has keys of its own
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (role !== "menu" || !step) return;
    event.preventDefault();
    moveFocus(event.currentTarget as HTMLElement, step);
  };
  return (
    <div
      ref={box}
      class="popover"
      popover="auto"
      role={role}
      aria-label={label}
      onKeyDown={onKey}
      onToggle={(event) => event.newState === "closed" && onClose()}
    >
      {children}
    </div>
  );
}

/** Below the button, or above it if there is no room; never outside the window. */
function place(box: HTMLElement, at: DOMRect): void {
  const { width, height } = box.getBoundingClientRect();
  const below = at.bottom + GAP;
  box.style.top = `${Math.max(GAP, below + height > innerHeight ? at.top - height - GAP : below)}px`;
  box.style.left = `${Math.max(GAP, Math.min(at.right - width, innerWidth - width - GAP))}px`;
}

function moveFocus(menu: HTMLElement, step: number): void {
  const items = [...menu.querySelectorAll<HTMLElement>(FOCUSABLE)];
  const here = items.indexOf(document.activeElement as HTMLElement);
  items[(here + step + items.length) % items.length]?.focus();
}
