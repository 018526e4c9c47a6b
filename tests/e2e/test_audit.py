"""The audit log of real API processes: two replicas on one machine, kill -9, a policy that is malformed."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import free_port, until
from tests.e2e.parts import Parts
from tests.e2e.test_wrong_settings import DATABASE, ran

pytestmark = pytest.mark.e2e
MAPS = "/api/v1/namespaces/default/configmaps"
SECONDS = 60


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with Parts(tmp_path / "data", nodes=0) as made:
        yield made


def names(path: Path) -> list[str]:
    """The objects of a file's events, each line of which must be whole."""
    lines = path.read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    return [json.loads(line).get("objectRef", {}).get("name", "") for line in lines]


def post(url: str, token: str, name: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    body = {"metadata": {"name": name}}
    return httpx.post(f"{url}{MAPS}", json=body, headers=headers, verify=False, timeout=SECONDS).status_code


def is_serving(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", verify=False).status_code == 200
    except httpx.TransportError:
        return False


def test_replicas_have_files_of_their_own_a_kill_leaves_whole_lines_and_an_end_leaves_no_event_out(
    parts: Parts,
) -> None:
    port, folder = free_port(), parts.folder / "audit"
    second = parts.add("api", "--port", str(port))
    urls = [parts.url, f"https://127.0.0.1:{port}"]
    until(lambda: is_serving(urls[1]), SECONDS, "the second replica serves")
    for number in range(20):
        assert [post(url, parts.token(), f"m{number}-{each}") for each, url in enumerate(urls)] == [201, 201]
    files = [folder / "audit.log", folder / "audit.2.log"]
    for each, path in enumerate(files):
        until(lambda path=path, each=each: f"m19-{each}" in names(path), SECONDS, "the events are written")
        posted = [name for name in names(path) if re.fullmatch(r"m\d+-\d", name)]
        assert posted == [f"m{number}-{each}" for number in range(20)]

    parts._parts.remove(second)
    os.kill(second.pid, signal.SIGKILL)
    second.wait()
    files[1].write_bytes(files[1].read_bytes() + b'{"kind":"Eve')  # as a kill within a write may leave it
    third = parts.add("api", "--port", str(port))
    until(lambda: is_serving(urls[1]), SECONDS, "a third replica serves")
    assert post(urls[1], parts.token(), "after") == 201
    until(lambda: "after" in names(files[1]), SECONDS, "it goes on in the same file")

    assert post(urls[1], parts.token(), "last") == 201
    third.send_signal(signal.SIGTERM)
    third.wait(SECONDS)
    assert "last" in names(files[1])


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        pytest.param("rules: [{level: All}]", 'rules[0].level: Unsupported value: "All"', id="level"),
        pytest.param("{", "error converting YAML to JSON", id="no YAML"),
        pytest.param(None, "cannot be read: No such file or directory: pass another path", id="no file"),
    ],
)
def test_a_malformed_policy_ends_the_start_with_one_line(tmp_path: Path, policy: str | None, line: str) -> None:
    path = tmp_path / "policy.yaml"
    if policy is not None:
        path.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{policy}")
    arguments = ("api", "--data-dir", str(tmp_path / "data"), "--port", "{}", "--database-url", DATABASE)
    ended = ran(*arguments, JOBPLANE_AUDIT_POLICY_FILE=str(path))
    assert ended.code == 78
    assert len(ended.lines) == 1
    assert f"JOBPLANE_AUDIT_POLICY_FILE: {path}: " in ended.lines[0]
    assert line in ended.lines[0]


def test_a_folder_that_cannot_be_written_ends_the_start_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = ("api", "--data-dir", str(tmp_path / "data"), "--port", "{}", "--database-url", DATABASE)
    ended = ran(*arguments, JOBPLANE_AUDIT_LOG_PATH=str(tmp_path / "file" / "audit.log"))
    assert ended.code == 78
    assert "JOBPLANE_AUDIT_LOG_PATH: cannot write" in ended.lines[0]
    assert ended.lines[0].endswith("pass another path")
