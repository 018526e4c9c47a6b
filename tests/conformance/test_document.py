"""The page that tells which scenarios hold is what this run has shown. Runs after all others."""

import os

import pytest

from tests.conformance.report import PAGE, RESULTS, WRITE


def test_the_committed_page_is_what_this_run_has_shown(pytestconfig: pytest.Config) -> None:
    results = pytestconfig.stash[RESULTS]
    if not results.outcomes or hasattr(pytestconfig, "workerinput"):
        pytest.skip("this process has run no scenarios, or not all")
    committed = PAGE.read_text() if PAGE.exists() else ""
    made = results.page(committed)
    if os.environ.get(WRITE):
        PAGE.write_text(made)
    else:
        assert made == committed, f"run the tests with {WRITE}=1 and commit {PAGE.name}"
