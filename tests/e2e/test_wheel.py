"""The wheel, in a virtual environment that has nothing else of Jobplane, from folders that are no checkout."""

import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests import wheel
from tests.conformance.documents import pi
from tests.e2e.cluster import Cluster, until
from tests.needs import lacking
from tests.wheel import ROOT, Distribution, Installed

# Others' packages of names that are common: where ours were found instead, or theirs by us, something would break.
FOREIGN = ("app", "migrations", "examples", "deploy", "program")


@pytest.fixture(scope="module")
def built() -> Distribution:
    return wheel.built()


@pytest.fixture(scope="module")
def installed(built: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    made = Installed(tmp_path_factory.mktemp("installed") / "venv", built.wheel)
    for name in FOREIGN:
        (made.packages / name).mkdir()
        (made.packages / name / "__init__.py").write_text(f"raise ImportError('the package {name} of somebody else')\n")
    return made


class InstalledCluster(Cluster):
    """`jobplane up` of the wheel."""

    def __init__(self, installed: Installed, folder: Path) -> None:
        super().__init__(folder)
        self.program = [installed.command]
        folder.mkdir(mode=0o755)  # so that it makes its own database


@pytest.fixture(scope="module")
def cluster(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with InstalledCluster(installed, tmp_path_factory.mktemp("up") / "data") as running:
        yield running
    assert running.surprises() == ""


def _shipped(*names: str) -> set[str]:
    """Files of the checkout that a user needs."""
    found = (path for name in names for path in (ROOT / name).rglob("*"))
    return {
        str(path.relative_to(ROOT))
        for path in found
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".mako", ".md")
    }


def test_the_wheel_has_one_name_in_site_packages_and_every_file_below_it(built: Distribution) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"jobplane"}
    expected = {f"jobplane/{name}" for name in _shipped("app", "migrations", "examples", "deploy")} | _shipped(
        "jobplane"
    )
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_wheel_has_the_page(built: Distribution) -> None:
    if not (ROOT / "app" / "api" / "ui" / "index.html").exists():
        lacking("needs the page: make setup builds it")
    names = zipfile.ZipFile(built.wheel).namelist()
    assert any(re.fullmatch(r"jobplane/app/api/ui/assets/.*\.js", name) for name in names)


def test_the_sdist_has_the_sources_of_the_wheel(built: Distribution) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert (
        _shipped("app", "migrations", "examples", "deploy", "jobplane") | {"pyproject.toml", "setup.py", "LICENSE"}
        <= names
    )


def test_the_demo_runs_beside_packages_of_the_same_names(installed: Installed, tmp_path: Path) -> None:
    shown = installed.run(tmp_path, "demo")
    assert (shown.returncode, shown.stdout.strip()) == (0, pi(2100)[:2002]), shown.stderr


def test_up_runs_a_job_of_the_examples(installed: Installed, cluster: Cluster, tmp_path: Path) -> None:
    assert installed.run(tmp_path, "examples").returncode == 0
    job = "/apis/batch/v1/namespaces/default/jobs"
    manifest = (tmp_path / "examples" / "pi.yaml").read_bytes()
    with cluster.client() as client:
        made = client.post(job, content=manifest, headers={"Content-Type": "application/yaml"})
        assert made.status_code == 201, made.text
        until(lambda: client.get(f"{job}/pi").json()["status"].get("succeeded") == 1, 60, "pi is computed")
    shown = installed.run(
        tmp_path,
        *("logs", "job/pi", "--data-dir", str(cluster.folder), "--server", cluster.url),
        *("--token-file", str(cluster.folder / "admin.token"), "--ca-file", str(cluster.folder / "tls" / "ca.crt")),
    )
    assert shown.stdout.startswith("3.14159"), shown.stderr


def test_every_process_of_up_is_that_of_the_wheel(installed: Installed, cluster: Cluster) -> None:
    programs = {str(installed.packages / "jobplane" / "program.py")}
    for part in ("api", "controllers", "agent"):
        arguments = Path(f"/proc/{cluster.pid_of(part)}/cmdline").read_text().split("\0")
        assert programs & {*arguments}, arguments


async def test_a_database_is_migrated(installed: Installed, empty: str, tmp_path: Path) -> None:
    shown = installed.run(tmp_path, "migrate", JOBPLANE_DATABASE_URL=empty)

    assert shown.returncode == 0, shown.stderr
    connection = await asyncpg.connect(empty)
    try:
        newest = max(path.name[:4] for path in (ROOT / "migrations" / "versions").glob("[0-9]*.py"))
        assert await connection.fetchval("select version_num from alembic_version") == newest
    finally:
        await connection.close()


def test_importing_it_makes_no_other_package_importable(installed: Installed, tmp_path: Path) -> None:
    program = "import jobplane, jobplane.program, sys; print(*sorted(p for p in sys.path if p.endswith('jobplane')))"
    shown = subprocess.run(
        [str(installed.folder / "bin" / "python"), "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == ""
