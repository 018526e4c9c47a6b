"""Each page of the manual with commands runs from top to bottom, and prints what it shows."""

import shutil
from pathlib import Path

import pytest

from tests.idp.provider import IdentityProvider, browser_command
from tests.manual.page import Command, File, find_missing, read_page
from tests.manual.shell import ROOT, Shell
from tests.needs import lacking

PAGES = sorted(
    path
    for folder in ("docs", "docs/how-to", "docs/explanation")
    for path in (ROOT / folder).glob("*.md")
    if "\n```console\n" in path.read_text() and path.stem != "sign-in-with-oidc"
)
# What a page waits for, and nobody has to see how long it takes by default.
SOON = {"JOBPLANE_SECRETS_KEY_LEAD_SECONDS": "1"}
pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in PAGES])
def test_the_commands_of_a_page_run_as_they_stand(path: Path, tmp_path: Path) -> None:
    steps = read_page(path)
    _need_programs(steps)
    folder = tmp_path / "reader"
    folder.mkdir()
    with Shell(folder, **SOON) as shell:
        _follow(steps, shell)


def test_the_page_about_oidc_runs_with_a_real_provider_and_a_browser(tmp_path: Path) -> None:
    steps = read_page(ROOT / "docs" / "how-to" / "sign-in-with-oidc.md")
    _need_programs(steps)
    folder = tmp_path / "reader"
    folder.mkdir()
    with IdentityProvider(tmp_path) as provider:
        stand_ins = {"https://id.example.com": provider.issuer}
        browser = browser_command(provider, tmp_path)
        with Shell(folder, stand_ins, BROWSER=browser, JOBPLANE_OIDC_CA_FILE=str(provider.ca_file)) as shell:
            _follow(steps, shell)


def _follow(steps: list[File | Command], shell: Shell) -> None:
    for step in steps:
        if isinstance(step, File):
            (shell.folder / step.name).write_text(step.text)
            continue
        code, printed = shell.run(step.line)
        assert (code != 0) == step.is_refused, f"$ {step.line}\n{printed}"
        missing = find_missing(step.output, printed)
        assert missing == "", f"$ {step.line}\ndid not print {missing!r}:\n{printed}"


def _need_programs(steps: list[File | Command]) -> None:
    lines = [step.line.split() for step in steps if isinstance(step, Command)]
    for program in ("kubectl", "pg_dump", "jq"):
        if any(program in words for words in lines) and not shutil.which(program):
            lacking(f"no {program}")


def test_pages_with_commands_are_found() -> None:
    assert {"gpus", "share-among-a-team"} <= {path.stem for path in PAGES}
