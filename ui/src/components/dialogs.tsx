// Dialogs: an object as YAML, YAML to edit and submit, and a question before something is lost.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { parse, stringify } from "yaml";

interface DialogProps {
  label: string;
  isWide?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ label, isWide, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Before the next key: an effect after the paint would lose an Escape that comes in between.
  useLayoutEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class={isWide ? "dialog wide-dialog" : "dialog"} aria-label={label} onClose={onClose}>
      <h2>{label}</h2>
      {children}
    </dialog>
  );
}

/** An object as YAML, without what servers manage, to read, copy or save. */
export function YamlDialog({ object, name, onClose }: { object: object; name: string; onClose: () => void }) {
  const text = toYaml(object);
  const isCopied = useSignal(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    isCopied.value = true;
  };
  return (
    <Dialog label={`${name} as YAML`} isWide onClose={onClose}>
      <pre class="yaml" tabIndex={0} data-testid="yaml">
        {text}
      </pre>
      <form method="dialog">
        <button type="button" onClick={() => void copy()}>
          {isCopied.value ? "Copied" : "Copy"}
        </button>
        <button type="button" onClick={() => save(`${name}.yaml`, text, "application/yaml")}>
          Download
        </button>
        <button type="submit" class="primary">
          Close
        </button>
      </form>
    </Dialog>
  );
}

interface EditProps {
  label: string;
  object: object;
  verb: string;
  onSubmit: (object: unknown) => Promise<void>;
  onClose: () => void;
}

/** An object as YAML to change. What is wrong with it is told here, and the text stays. */
export function EditDialog({ label, object, verb, onSubmit, onClose }: EditProps) {
  const text = useSignal(stringify(object));
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const submit = async (): Promise<void> => {
    isBusy.value = true;
    try {
      await onSubmit(parse(text.value));
      onClose();
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
    }
    isBusy.value = false;
  };
  return (
    <Dialog label={label} isWide onClose={onClose}>
      <textarea
        class="yaml mono"
        aria-label="YAML"
        spellcheck={false}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
      />
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      <form method="dialog">
        <button type="submit">Cancel</button>
        <button type="button" class="primary" disabled={isBusy.value} onClick={() => void submit()}>
          {verb}
        </button>
      </form>
    </Dialog>
  );
}

interface ConfirmProps {
  label: string;
  verb: string;
  onConfirm: () => void;
  onClose: () => void;
  children: ComponentChildren;
}

export function ConfirmDialog({ label, verb, onConfirm, onClose, children }: ConfirmProps) {
  return (
    <Dialog label={label} onClose={onClose}>
      <div class="dialog-text">{children}</div>
      <form method="dialog">
        <button type="submit">Cancel</button>
        <button type="submit" class="danger solid" onClick={onConfirm}>
          {verb}
        </button>
      </form>
    </Dialog>
  );
}

/** Hand a text to the viewer as a file. */
export function save(name: string, text: string | Blob, type = "text/plain"): void {
  const address = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function toYaml(object: object): string {
  const { metadata, ...rest } = object as { metadata?: Record<string, unknown> };
  const { managedFields: _, ...shown } = metadata ?? {};
  return stringify({ ...pick(rest, ["apiVersion", "kind"]), metadata: shown, ...omit(rest, ["apiVersion", "kind"]) });
}

function pick(object: Record<string, unknown>, names: string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(object).filter(([name]) => names.includes(name)));
}

function omit(object: Record<string, unknown>, names: string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));
}
