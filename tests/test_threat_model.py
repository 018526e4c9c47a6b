"""The threat model names a test for each threat, and each of them exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)))


def test_it_names_tests() -> None:
    assert len(NAMED) > 35


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(async )?def {name or 'test_'}", text, re.MULTILINE)


def test_every_threat_has_a_test_or_says_that_nothing_holds() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and line.count(" | ") == 2]
    threats = [row for row in rows if not row.startswith(("| Threat", "| Case", "|---"))]
    assert len(threats) > 25
    assert [row for row in threats if "`tests/" not in row and "known limits" not in row] == []


def test_every_fuzzer_is_listed() -> None:
    fuzzers = {f"tests/fuzz/{path.name}" for path in (ROOT / "tests" / "fuzz").glob("test_*.py")}
    assert fuzzers <= {path for path, _ in NAMED}


def test_every_attack_case_is_listed_with_the_runtimes_that_it_is_tried_on() -> None:
    """E and P name the files of whole Jobplanes with containers of images, and with processes."""
    rows = re.findall(r"^\| (A\d+) .*$", TEXT, re.MULTILINE)
    assert rows == [f"A{number}" for number in (*range(1, 15), *range(20, 40))]
    for mark, file in (("E", "test_engine_isolation"), ("P", "test_isolation")):
        assert re.findall(rf"(?:^|[|,]) {mark} `tests/e2e/(?!{file}\.py)", TEXT, re.MULTILINE) == []
    for case in ("A25", "A26", "A27", "A28", "A35"):
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| {case} "))
        assert "E `tests/e2e/test_engine_isolation.py::" in row
        assert "P `tests/e2e/test_isolation.py::" in row
    engines = (ROOT / "tests" / "e2e" / "test_engine_isolation.py").read_text(encoding="utf-8")
    assert 'params=["oci", *(["cri", "docker"] if ALL_ENGINES else [])]' in engines
    assert "JOBPLANE_ENGINES=all" in (ROOT / "Makefile").read_text(encoding="utf-8")
