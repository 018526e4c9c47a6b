// The menu of one row: where it leads, and what can be done to it. An action that the viewer may not do is grey, and says so.
import { Link } from "wouter-preact";
import { type RowAction, rightOn } from "../actions/row-actions";
import { useMay } from "../api/hooks";
import type { KubernetesObject } from "../api/types";
import { Popover } from "./popover";

export interface RowLink<T> {
  readonly name: string;
  readonly to: (row: T) => string;
}

interface Props<T> {
  row: T;
  anchor: HTMLElement;
  links: readonly RowLink<T>[];
  actions: readonly RowAction<T>[];
  onAct: (action: RowAction<T>, row: T) => void;
  onClose: () => void;
}

export function RowMenu<T extends KubernetesObject>({ row, anchor, links, actions, onAct, onClose }: Props<T>) {
  return (
    <Popover role="menu" label={`Actions on ${row.metadata.name}`} anchor={anchor} onClose={onClose}>
      {links.map(({ name, to }) => (
        <Link key={name} role="menuitem" href={to(row)} onClick={onClose}>
          {name}
        </Link>
      ))}
      {actions
        .filter((action) => action.appliesTo(row))
        .map((action) => (
          <Item
            key={action.name}
            action={action}
            row={row}
            onAct={() => {
              onClose();
              onAct(action, row);
            }}
          />
        ))}
    </Popover>
  );
}

function Item<T extends KubernetesObject>({ action, row, onAct }: { action: RowAction<T>; row: T; onAct: () => void }) {
  const right = rightOn(action, row);
  const isAllowed = useMay(right);
  // Not `disabled`: the arrow keys reach it, too, and its reason is read.
  return (
    <button
      type="button"
      role="menuitem"
      class={action.warning ? "danger" : undefined}
      aria-disabled={!isAllowed}
      title={isAllowed ? undefined : `You may not ${right.verb} ${right.resource}${right.subresource ? `/${right.subresource}` : ""}`}
      onClick={isAllowed ? onAct : undefined}
    >
      {action.name}
      {action.warning && "…"}
    </button>
  );
}
