"""Kubernetes' website as a folder: its manifests, the blocks of its pages, and the Dockerfiles for which it asks.

The folder is a checkout of github.com/kubernetes/website, named by JOBPLANE_WEBSITE. Nothing of it is part of this project, and
nothing of it is changed but what a page tells its reader to change.
"""

import json
import os
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest


class Recipe(NamedTuple):
    """What a Dockerfile says of the image: its command, its folder, and the files that it copies, by their place there."""

    command: list[str]
    folder: str
    files: dict[str, Path]


class Website:
    def __init__(self, folder: Path) -> None:
        self._english = folder / "content" / "en"

    def example(self, name: str) -> Path:
        return self._english / "examples" / name

    def block(self, page: str, holds: str, language: str = "") -> str:
        """The first block of code with this text on a page of the tasks."""
        text = (self._english / "docs" / "tasks" / "job" / f"{page}.md").read_text()
        for indent, kind, code in re.findall(r"^( *)```(\w*)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
            del indent
            if holds in code and language in ("", kind):
                return textwrap.dedent(code)
        raise AssertionError(f"no block of {page} has {holds!r}")

    def dockerfile(self, name: str) -> Recipe:
        """How the image of an example is made. What RUN and FROM give is the stand-in's part."""
        file = self.example(name)
        command, folder, files = ["/bin/sh"], "/", {}
        for verb, rest in re.findall(r"^(CMD|WORKDIR|COPY)\s+(.*?)\s*$", file.read_text(), re.MULTILINE):
            if verb == "CMD":
                command = json.loads(rest) if rest.startswith("[") else ["/bin/sh", "-c", rest]
            elif verb == "WORKDIR":
                folder = rest
            else:
                *sources, target = rest.split()
                files |= {_place(target, folder, source): file.parent / source for source in sources}
        return Recipe(command, folder, files)


def _place(target: str, folder: str, source: str) -> str:
    place = f"{target}{Path(source).name}" if target.endswith("/") else target
    return os.path.normpath(os.path.join(folder, place))


def find() -> Website:
    """Skips the test if there is none."""
    named = os.environ.get("JOBPLANE_WEBSITE", "")
    if not named:
        pytest.skip("JOBPLANE_WEBSITE is not set: it names a checkout of github.com/kubernetes/website")
    website = Website(Path(named))
    assert website.example("controllers/job.yaml").exists(), f"{named} has no content/en/examples/controllers/job.yaml"
    return website
