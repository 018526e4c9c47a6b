"""The page's pure functions: their own tests, in ui/tests, run as one test here so that they run wherever these do."""

import shutil
import subprocess
from pathlib import Path

from tests.needs import lacking

UI = Path(__file__).parents[2] / "ui"


def test_the_pages_functions_pass_their_own_tests() -> None:
    if not (UI / "node_modules" / ".bin" / "vitest").exists() or shutil.which("node") is None:
        lacking("the page was not built here, or there is no node: `make page`")
    ran = subprocess.run(
        ["node", "node_modules/vitest/vitest.mjs", "run"], cwd=UI, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "passed" in ran.stdout
