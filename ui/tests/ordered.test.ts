import { expect, test } from "vitest";
import { type Order, OrderedRows } from "../src/api/ordered";

interface Row {
  id: number;
  size: number;
}

const order = (isDescending: boolean): Order<Row> => ({
  matches: (row) => row.size % 5 !== 0,
  by: (row) => row.size,
  nameOf: (row) => String(row.id),
  isDescending,
});

/** Numbers that look random and are the same each time. */
function* numbers(seed: number): Generator<number, never> {
  for (let value = seed; ; value = (value * 48271) % 2147483647) yield value;
}

test.each([false, true])("after any changes, rows are as if they were sorted anew (descending: %s)", (isDescending) => {
  const random = numbers(7);
  const items = new Map<string, Row>();
  const kept = new OrderedRows(order(isDescending));
  for (let round = 0; round < 60; round += 1) {
    const changed = new Set<string>();
    for (let change = 0; change < 7; change += 1) {
      const id = random.next().value % 40;
      changed.add(String(id));
      if (random.next().value % 4 === 0) items.delete(String(id));
      else items.set(String(id), { id, size: random.next().value % 12 });
    }
    kept.update(changed, items);
    const anew = new OrderedRows(order(isDescending));
    anew.reset(items);
    expect(kept.rows).toEqual(anew.rows);
  }
  const few = (row: Row): boolean => row.size < 4;
  kept.filter(few);
  const filtered = new OrderedRows({ ...order(isDescending), matches: few });
  filtered.reset(items);
  expect(kept.rows).toEqual(filtered.rows);
  kept.filter(order(isDescending).matches);
  const sizes = kept.rows.map((row) => row.size);
  expect(sizes).toEqual([...sizes].sort((a, b) => (isDescending ? b - a : a - b)));
  expect(sizes.length).toBeGreaterThan(5);
});
