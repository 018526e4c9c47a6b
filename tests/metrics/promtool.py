"""promtool, which comes with Prometheus: what it says of a scrape or a file is what Prometheus would say."""

import shutil
import subprocess

from tests.needs import lacking


def promtool(*arguments: str, text: str = "") -> str:
    """Run it; return what it prints. Fails the test if it finds a fault."""
    program = shutil.which("promtool") or lacking("promtool (Debian's package prometheus)")
    ran = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def check_metrics(text: str) -> None:
    """Fail unless Prometheus reads the scrape, and has nothing to say of its names and helps."""
    assert not promtool("check", "metrics", text=text)
