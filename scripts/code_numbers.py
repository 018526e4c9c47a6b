"""How the code is cut: files, folders, functions, importers, repeated names. Printed by `make numbers`; nothing is enforced."""

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

APP, TESTS = Path("app"), Path("tests")
MANY, SHORT = 30, 60
FAMILIES = {
    "for a Job decision": ("app.plans.jobs.job", "app.plans."),
    "for the cri runtime": ("app.runtimes.cri.runtime", "app.runtimes."),
}


def modules(root: Path) -> dict[str, Path]:
    """Modules by dotted name, packages' own files left out."""
    return {
        str(path.with_suffix("")).replace("/", "."): path
        for path in sorted(root.rglob("*.py"))
        if path.name != "__init__.py"
    }


def imports(tree: ast.AST, known: Iterable[str]) -> set[str]:
    """Modules among those known that a file imports, also where it imports a name of theirs."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & set(known)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def reached(start: str, prefix: str, edges: dict[str, set[str]]) -> set[str]:
    """Modules with this prefix that a reader opens who follows imports from `start`."""
    found, todo = {start}, [start]
    while todo:
        for each in edges.get(todo.pop(), ()):
            if each.startswith(prefix) and each not in found:
                found.add(each)
                todo.append(each)
    return found


def lines(paths: Iterable[Path]) -> list[int]:
    return [len(path.read_text().splitlines()) for path in paths]


def twice(names: Iterable[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


def figures() -> Iterator[tuple[str, object]]:
    """Labels and what they are of."""
    app, tests = modules(APP), modules(TESTS)
    trees = {name: ast.parse(path.read_text()) for name, path in app.items()}
    edges = {name: imports(tree, app) for name, tree in trees.items()}
    importers = Counter(each for found in edges.values() for each in found)
    sizes = dict(zip(app, lines(app.values()), strict=True))
    yield "modules", len(app)
    yield "lines", sum(sizes.values())
    yield "median file, lines", round(median(sizes.values()))
    folders = Counter(path.parent for path in APP.rglob("*.py"))
    yield (
        f"folders over {MANY} files",
        ", ".join(f"{folder} ({n})" for folder, n in folders.items() if n > MANY) or "none",
    )
    yield "modules with one importer", sum(importers[name] == 1 for name in app)
    yield f"of these, under {SHORT} lines", sum(importers[name] == 1 and sizes[name] < SHORT for name in app)
    yield from function_figures(trees)
    classes = [node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    yield "class names that occur twice", twice(classes)
    yield "module names that occur twice", twice(name.rsplit(".")[-1] for name in app)
    for what, (start, prefix) in FAMILIES.items():
        yield f"modules opened {what}", len(reached(start, prefix, edges))
    yield "test modules", len(tests)
    yield "test lines", sum(lines(tests.values()))


def function_figures(trees: Mapping[str, ast.AST]) -> Iterator[tuple[str, object]]:
    found = [each for tree in trees.values() for each in functions(tree)]
    sizes = [(each.end_lineno or each.lineno) - each.lineno + 1 for each in found]
    names = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    used = Counter(node.id if isinstance(node, ast.Name) else node.attr for node in names)
    private = {each.name for each in found if each.name.startswith("_") and not each.name.startswith("__")}
    yield "functions", len(found)
    yield "median function, lines", round(median(sizes))
    yield "functions over 40 lines", sum(size > 40 for size in sizes)
    yield "private functions used once", f"{sum(used[name] == 1 for name in private)} of {len(private)}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{label:<44}{value}\n" for label, value in figures())
