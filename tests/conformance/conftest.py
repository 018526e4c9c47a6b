"""Marks and collects scenarios, and one Jobplane for those that need real processes."""

from collections.abc import Generator, Iterator
from pathlib import Path

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
    """All of them together, in one process, for they make one page; and what is made of all results last."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: item.path == HERE / "test_document.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.config.stash[RESULTS].heard(item, report)
    return report


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Runs containers as processes."""
    with Cluster(tmp_path_factory.mktemp("process") / "data") as running:
        yield running
    assert running.surprises() == ""
