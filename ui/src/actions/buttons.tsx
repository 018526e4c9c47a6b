// Buttons that pages about one object share, each with its key: the log, the YAML, and what is done only after a question.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLocation } from "wouter-preact";
import type { Action } from "../api/hooks";
import { ConfirmDialog, YamlDialog } from "../components/dialogs";
import { useKeys } from "../components/keys";
import { ActionButton, type Attempting, press } from "./action";

/** Opens the log at `path`, also by the key `l`. */
export function LogsButton({ path }: { path: string }) {
  const [, go] = useLocation();
  const open = (): void => go(path);
  useKeys({ l: open });
  return (
    <button type="button" aria-keyshortcuts="l" onClick={open}>
      Logs<kbd aria-hidden="true">l</kbd>
    </button>
  );
}

/** Shows an object as YAML, also by the key `y`. Lists and watches leave out what `kind` and `apiVersion` say again. */
export function YamlButton({ object, apiVersion, kind }: YamlProps) {
  const isOpen = useSignal(false);
  const open = (): void => void (isOpen.value = true);
  useKeys({ y: open });
  return (
    <>
      <button type="button" aria-keyshortcuts="y" onClick={open}>
        YAML<kbd aria-hidden="true">y</kbd>
      </button>
      {isOpen.value && (
        <YamlDialog
          object={{ ...(apiVersion && { apiVersion, kind }), ...object }}
          name={object.metadata.name}
          onClose={() => (isOpen.value = false)}
        />
      )}
    </>
  );
}

interface YamlProps {
  object: { metadata: { name: string } };
  apiVersion?: string;
  kind?: string;
}

interface ConfirmedProps {
  right: Action;
  attempting: Attempting;
  letter: string;
  verb: string;
  question: string;
  onConfirm: () => void;
  /** What it will do, in words. */
  children: ComponentChildren;
}

/** A button of what loses something: it asks first. */
export function ConfirmedButton({ right, attempting, letter, verb, question, onConfirm, children }: ConfirmedProps) {
  const isOpen = useSignal(false);
  useKeys({ [letter]: () => press(letter) });
  return (
    <>
      <ActionButton {...{ right, attempting, letter }} kind="danger" onAct={() => (isOpen.value = true)}>
        {verb}
      </ActionButton>
      {isOpen.value && (
        <ConfirmDialog label={question} verb={verb} onConfirm={onConfirm} onClose={() => (isOpen.value = false)}>
          {children}
        </ConfirmDialog>
      )}
    </>
  );
}
