// Buttons of actions: greyed with the reason if the viewer may not, with the key that does the same, and one place for failures.
import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { type Action, useMay } from "../api/hooks";

export interface Attempting {
  readonly problem: Signal<string>;
  readonly done: Signal<string>;
  readonly isBusy: Signal<boolean>;
  /** Run an action; what it refuses becomes `problem`, what it returns `done`. */
  run(action: () => Promise<string | undefined>): Promise<void>;
}

export function useAttempting(): Attempting {
  const problem = useSignal("");
  const done = useSignal("");
  const isBusy = useSignal(false);
  const run = async (action: () => Promise<string | undefined>): Promise<void> => {
    if (isBusy.value) return;
    isBusy.value = true;
    problem.value = done.value = "";
    try {
      done.value = (await action()) ?? "";
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
    }
    isBusy.value = false;
  };
  return { problem, done, isBusy, run };
}

interface ButtonProps {
  right: Action;
  attempting: Attempting;
  letter?: string;
  kind?: "danger" | "primary";
  onAct: () => void;
  children: ComponentChildren;
}

export function ActionButton({ right, attempting, letter, kind, onAct, children }: ButtonProps) {
  const isAllowed = useMay(right);
  const verb = `${right.verb} ${right.resource}${right.subresource ? `/${right.subresource}` : ""}`;
  return (
    <button
      type="button"
      class={kind}
      disabled={!isAllowed || attempting.isBusy.value}
      aria-keyshortcuts={letter}
      title={isAllowed ? undefined : `You may not ${verb}`}
      data-action={letter}
      onClick={onAct}
    >
      {children}
      {letter && <kbd aria-hidden="true">{letter}</kbd>}
    </button>
  );
}

/** What the last action said: a problem stays until the next one. */
export function Outcome({ attempting }: { attempting: Attempting }) {
  if (attempting.problem.value) {
    return (
      <p class="problem" role="alert">
        {attempting.problem.value}
      </p>
    );
  }
  return attempting.done.value ? (
    <p class="note" role="status">
      {attempting.done.value}
    </p>
  ) : null;
}

/** Do what a key stands for, if its button may be pressed: rights are asked in one place. */
export function press(letter: string): void {
  document.querySelector<HTMLButtonElement>(`main [data-action="${letter}"]:not(:disabled)`)?.click();
}
