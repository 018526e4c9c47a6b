"""Marks and collects scenarios, and one Jobplane for those that need real processes.

With xdist, workers hand what they have seen to the process that started them, which alone judges the page.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import admin, url
from tests.conformance.report import RESULTS, Results
from tests.e2e.cluster import Cluster

__all__ = ["admin", "url"]  # fixtures

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "scenario(number, title): a scenario of Kubernetes' own tests, see docs/conformance.md"
    )
    config.stash[RESULTS] = Results()


def pytest_itemcollected(item: pytest.Item) -> None:
    item.config.stash[RESULTS].collected(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.config.stash[RESULTS].heard(item, report)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended; one that broke down has left nothing."""
    if told := getattr(node, "workeroutput", {}).get("scenarios"):
        node.config.stash[RESULTS].join(told)


def pytest_sessionfinish(session: pytest.Session) -> None:
    results = session.config.stash[RESULTS]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["scenarios"] = results.told()
    elif results.fault():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if fault := config.stash[RESULTS].fault():
        terminalreporter.section("docs/conformance.md is not what this run has shown", red=True)
        terminalreporter.line(fault)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Runs containers as processes."""
    with Cluster(tmp_path_factory.mktemp("process") / "data") as running:
        yield running
    assert running.surprises() == ""
