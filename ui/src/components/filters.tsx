// Filters of a list: choices, and chips for those that the address has without a field of their own.
import { useCollection } from "../api/hooks";
import { NAMESPACES } from "../api/resources";

export function NamespaceChoice({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const namespaces = useCollection(NAMESPACES);
  const names = [...namespaces.items.value.values()].map((each) => each.metadata.name).sort();
  return <Choice name="Namespace" value={value} options={value && !names.includes(value) ? [value, ...names] : names} onChange={onChange} />;
}

export function Choice({ name, value, options, onChange }: { name: string; value: string; options: readonly string[]; onChange: (value: string) => void }) {
  return (
    <label class="choice">
      <span class="hidden">{name}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">{name}: all</option>
        {options.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A filter of the address that has no field of its own. */
export function Chip({ name, value, onRemove }: { name: string; value: string; onRemove: () => void }) {
  return (
    <button type="button" class="chip" onClick={onRemove} aria-label={`Remove the filter ${name}: ${value}`}>
      {name}: {value} <span aria-hidden="true">×</span>
    </button>
  );
}
