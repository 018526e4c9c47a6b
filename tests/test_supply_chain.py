"""Supply chain: the bill of materials, known vulnerabilities of dependencies, and the linter's security rules."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts import vulnerabilities

ROOT = Path(__file__).parents[1]
SECURITY = Path(sys.prefix) / "security" / "bin"
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))


def entry(package: str, *events: dict[str, str], versions: tuple[str, ...] = ()) -> dict[str, Any]:
    affected = {"package": {"name": package, "ecosystem": "PyPI"}, "versions": versions}
    return {"id": f"TEST-{package}", "affected": [affected | {"ranges": [{"type": "ECOSYSTEM", "events": [*events]}]}]}


def database(folder: Path, *entries: dict[str, Any]) -> Path:
    path = folder / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number, each in enumerate(entries):
            archive.writestr(f"{number}.json", json.dumps(each))
    return path


@pytest.mark.parametrize(
    ("version", "is_vulnerable"),
    [
        ("0.9", False),
        ("1.0", True),
        ("1.4.1", True),
        ("1.5", False),
        ("2.0", True),
        ("2.2", True),
        ("2.3", False),
        ("7.7", True),
    ],
)
def test_a_version_is_vulnerable_from_its_introduction_to_its_fix(
    tmp_path: Path, version: str, is_vulnerable: bool
) -> None:
    events = ({"introduced": "1.0"}, {"fixed": "1.5"}, {"introduced": "2.0"}, {"last_affected": "2.2"})
    made = vulnerabilities.read_database(database(tmp_path, entry("Some_Package", *events, versions=("7.7",))))
    found = vulnerabilities.find_vulnerabilities(made, "some-package", version)
    assert [each["id"] for each in found] == (["TEST-Some_Package"] if is_vulnerable else [])
    assert vulnerabilities.find_vulnerabilities(made, "other", version) == []


def security_program(name: str) -> Path:
    if not (SECURITY / name).exists():
        pytest.skip(f"no {name}: make sbom")
    return SECURITY / name


def test_a_vulnerable_dependency_is_found_offline(tmp_path: Path) -> None:
    security_program("pip-audit")
    command = [SECURITY / "python", ROOT / "scripts" / "vulnerabilities.py"]
    outcomes = []
    for each in (entry("alembic", {"introduced": "0"}), entry("alembic", {"introduced": "999"})):
        done = subprocess.run(
            [*command, database(tmp_path, each)], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )
        outcomes.append((done.returncode, "TEST-alembic" in done.stdout, done.stderr))
    assert [(code, is_named) for code, is_named, _ in outcomes] == [(1, True), (0, False)], outcomes


def test_what_is_no_database_ends_with_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "all.zip").write_text("nothing")
    assert vulnerabilities.main([str(tmp_path / "all.zip")]) == 2
    assert "is no copy of OSV's database" in capsys.readouterr().err


def test_the_bill_of_materials_has_what_is_locked(tmp_path: Path) -> None:
    program = security_program("cyclonedx-py")
    out = tmp_path / "sbom.json"
    options = ["--pyproject", "pyproject.toml", "--output-reproducible", "--of", "JSON", "--output-file", out]
    subprocess.run([program, "requirements", *options, "requirements.lock"], cwd=ROOT, check=True, capture_output=True)
    made = json.loads(out.read_text())
    assert made["bomFormat"] == "CycloneDX"
    assert made["metadata"]["component"]["name"] == "jobplane"
    listed = {each["name"]: each["version"] for each in made["components"]}
    assert listed == LOCKED
    assert all(any("hashes" in reference for reference in each["externalReferences"]) for each in made["components"])


def test_every_locked_package_has_hashes() -> None:
    assert len(LOCKED) > 20
    for lock in ("requirements.lock", "requirements-dev.lock", "scripts/security.lock"):
        blocks = re.split(r"\n(?=[\w.-]+==)", (ROOT / lock).read_text(encoding="utf-8"))[1:]
        assert [block.partition(" ")[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_the_security_rules_of_the_linter_are_on(tmp_path: Path) -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert {each for each in lint["ignore"] if each.startswith("S") and each[1:].isdigit()} == {"S603", "S607"}
    bad = tmp_path / "app" / "bad.py"
    bad.parent.mkdir()
    bad.write_text('"""Bad."""\n\nimport subprocess\n\nsubprocess.run("ls", shell=True, check=True)\n')
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}") or "ruff"
    done = subprocess.run(
        [ruff, "check", "--no-cache", "--config", ROOT / "pyproject.toml", bad],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "S602" in done.stdout
