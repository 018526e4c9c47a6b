"""The examples of docs/jobs.md, each run as it stands with a real kubectl, and what a reader would see."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import yaml

from app.runtimes.linux.cgroup_roots import find
from tests.e2e.cluster import Cluster
from tests.e2e.kubectl import SECONDS, Kubectl, newest
from tests.e2e.manifests import a_job
from tests.needs import lacking

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
_numbers = count()
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, str]:
    """The page's sections that have examples, by heading."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    return {heading: text for heading, text in zip(parts[::2], parts[1::2], strict=True) if _BLOCK.search(text)}


@dataclass(frozen=True)
class Reader:
    """Someone who follows the page: saves each manifest, types each command, and compares what is printed."""

    kubectl: Kubectl

    def follow(self, heading: str) -> None:
        printed = ""
        for language, text in _BLOCK.findall(sections()[heading]):
            if language == "yaml":
                self.kubectl("apply", "-f", "-", stdin=text)
            elif language == "sh":
                printed = self.type(text)
            else:
                assert re.fullmatch(_pattern(text), _squeezed(printed)), f"{heading}: {printed}"

    def type(self, commands: str) -> str:
        """What these commands print together. They may fail: then that is what they show."""
        done = subprocess.run(
            ["sh", "-c", commands],
            env=self._environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS * 2,
        )
        return done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        configuration = yaml.safe_load(self.kubectl.cluster.kubeconfig.read_text())
        for each in configuration["contexts"]:
            each["context"]["namespace"] = self.kubectl.namespace
        path = self.kubectl.file("kubeconfig", yaml.safe_dump(configuration))
        return {"HOME": str(self.kubectl.home), "PATH": os.environ["PATH"], "KUBECONFIG": path}


def _squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def _pattern(text: str) -> str:
    """The printed text of the page; `…` stands for anything within a line."""
    return re.escape(_squeezed(text)).replace("…", "[^\n]*")


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    made = Kubectl.at(newest(), cluster, tmp_path_factory.mktemp("home"))
    yield made
    made.api.close()


@pytest.fixture
def reader(kubectl: Kubectl) -> Reader:
    """In a namespace of its own."""
    return Reader(kubectl.apart(f"verbs-{next(_numbers)}"))


@pytest.mark.parametrize("heading", sections())
def test_an_example_of_the_page_does_as_the_page_says(reader: Reader, heading: str, tmp_path: Path) -> None:
    if heading == "Retry with more memory" and (why := find(tmp_path / "state").why):
        lacking(f"this machine keeps no limits: {why}")
    reader.follow(heading)


@pytest.mark.parametrize(
    ("annotation", "text", "detail"),
    [
        ("after", "prepare:done", "must be NAME, NAME:ok, NAME:failed or NAME:any, several separated by commas"),
        ("after", "asked", "must not name the Job itself"),
        ("heartbeat-timeout", "5 minutes", "must be a duration above zero, such as 90s, 5m or 1h30m"),
        ("heartbeat", "now", "must be a time as RFC 3339 has it, such as 2026-01-31T12:00:00Z"),
        ("start-timeout", "0s", "must be a duration above zero, such as 90s, 5m or 1h30m"),
        ("main-container", "other", "must name a container of the pods: main"),
        ("oom-memory", "x1.5", "must be xFACTOR,max=MEMORY with a factor above 1, such as x1.5,max=8Gi"),
    ],
)
def test_an_annotation_that_makes_no_sense_is_refused(reader: Reader, annotation: str, text: str, detail: str) -> None:
    job = a_job("asked", "true")
    job["metadata"]["annotations"] = {f"jobplane.dev/{annotation}": text}

    said = reader.kubectl.send("apply", job, code=1)

    where = f"metadata.annotations[jobplane.dev/{annotation}]"
    assert f'The Job "asked" is invalid: {where}: Invalid value: "{text}": {detail}' in said
