import { expect, test } from "vitest";
import { Selection } from "../src/components/selection";
import { readViews, withView, withoutView } from "../src/components/views";

const rows = [..."abcdef"].map((uid) => ({ metadata: { uid } }));
const selected = (selection: Selection): string => selection.of(rows).map((row) => row.metadata.uid).join("");

test("a range goes from the row that was last selected, in either direction", () => {
  const selection = new Selection();
  selection.toggle("b");
  selection.extend("d", rows);
  expect(selected(selection)).toBe("bcd");
  selection.extend("a", rows);
  expect(selected(selection)).toBe("abcd");
});

test("a range deselects if its first row was deselected", () => {
  const selection = new Selection();
  selection.replace("abcdef");
  selection.toggle("b");
  selection.extend("e", rows);
  expect(selected(selection)).toBe("af");
});

test("without a first row, or if that is gone, a range is one row", () => {
  const selection = new Selection();
  selection.extend("c", rows);
  expect(selected(selection)).toBe("c");
  selection.toggle("z");
  selection.extend("e", rows);
  expect(selected(selection)).toBe("ce");
});

test("what is selected, but not shown, is not acted upon", () => {
  const selection = new Selection();
  selection.replace("abc");
  expect(selection.of(rows.slice(2))).toEqual([rows[2]]);
  selection.clear();
  expect(selection.of(rows)).toEqual([]);
});

test("a view replaces the one of its name in the same list", () => {
  const first = { path: "/jobs", name: "Mine", query: "q=a" };
  const views = withView(withView([first], { ...first, query: "q=b" }), { ...first, path: "/pods" });
  expect(views.map((each) => `${each.path}?${each.query}`)).toEqual(["/jobs?q=b", "/pods?q=a"]);
  expect(withoutView(views, first)).toHaveLength(1);
});

test.each(["", "{", "7", '[{"path": 1}]'])("what is no view is no view: %s", (text) => {
  expect(readViews(text)).toEqual([]);
});
