"""The units under a real systemd, as docs/install.md has them: start, kill -9, stop, pods that go on, the journal."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import until
from tests.e2e.systemd_machine import POSTGRES, Machine, can_boot

pytestmark = pytest.mark.e2e
SECONDS = 120
STATE, AGENT_STATE = "/var/lib/jobplane", "/var/lib/jobplane-agent"
UP = f"--data-dir {STATE}"
DATABASE = "postgresql://jobplane@127.0.0.1/postgres"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("machine"))
    if not can_boot():
        pytest.skip("needs the right to mount, and to make namespaces: systemd cannot boot here")
    with made as booted:
        booted.check("useradd --system --home-dir /var/lib/jobplane jobplane")
        booted.check("jobplane systemd /etc/systemd/system && systemctl daemon-reload")
        yield booted


@pytest.fixture
def up(machine: Machine) -> Iterator[Machine]:
    """With `jobplane.service`: everything on one machine."""
    machine.check("systemctl enable --now jobplane")
    until(lambda: _serves(machine, UP), SECONDS, "jobplane.service serves")
    yield machine
    machine.check("systemctl disable --now jobplane")
    assert machine.leaks(STATE) == []


@pytest.fixture
def parts(machine: Machine) -> Iterator[Machine]:
    """With a Postgres of its own, and one service for each part."""
    data = "/var/lib/database"
    postgres = f"{POSTGRES}/postgres -D {data}/cluster -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    machine.check(
        "systemd-run --quiet --unit database --property User=jobplane --property StateDirectory=database bash -c "
        f"'{POSTGRES}/initdb -D {data}/cluster -A trust -U jobplane && exec {postgres}'"
    )
    machine.check(f"rm -rf {STATE} && install -d -m 0700 /etc/jobplane")
    for part in ("api", "controllers"):
        machine.check(f"install -m 0600 /dev/stdin /etc/jobplane/{part}.env <<<'JOBPLANE_DATABASE_URL={DATABASE}'")
    machine.check("echo JOBPLANE_TLS_SAN=api >>/etc/jobplane/api.env")
    machine.check(f"echo JOBPLANE_CA_FILE={STATE}/tls/ca.crt >>/etc/jobplane/controllers.env")
    machine.check("systemctl enable --now jobplane-api")
    yield machine
    machine.check("systemctl stop jobplane-agent jobplane-api jobplane-controllers database")
    assert machine.leaks(STATE, AGENT_STATE, "/var/lib/database") == []


def _serves(machine: Machine, options: str = "") -> bool:
    """Return whether the API answers. Our command, which takes half a second of a processor, is not called for a look."""
    is_open = machine.run("exec 3<>/dev/tcp/127.0.0.1/6443").returncode == 0
    return is_open and machine.run(f"jobplane list {options}").returncode == 0


def in_api_settings(command: str) -> str:
    """The command line with which docs/install.md runs a command that needs the database."""
    return f"systemd-run --quiet --pipe --wait --property EnvironmentFile=/etc/jobplane/api.env {command}"


class WaitingJob:
    """A Job whose pod writes its process id, and goes on until it is told to end."""

    def __init__(self, machine: Machine, name: str, folder: str, options: str = "") -> None:
        self._machine, self.name, self._options = machine, name, options
        self._begun, self._end = f"{folder}/{name}.begun", f"{folder}/{name}.end"
        # A command of Kubernetes has `$` for `$$`.
        script = (
            f"read pid rest </proc/self/stat; echo $pid >{self._begun}; "
            f"until test -e {self._end}; do sleep 0.1; done; echo ended"
        )
        machine.check(f"jobplane run {options} --name {name} --detach -- sh -c '{script}'")
        until(lambda: self._pid().isdigit(), SECONDS, f"{name} runs")

    def _pid(self) -> str:
        return self._machine.run(f"cat {self._begun}").stdout.strip()

    def runs(self) -> bool:
        return self._machine.run(f"kill -0 {self._pid()}").returncode == 0

    def end(self) -> None:
        """Let it end; returns when the API has its whole log."""
        self._machine.check(f"touch {self._end}")
        logs = f"jobplane logs --follow {self._options} {self.name}"
        until(lambda: "ended" in self._machine.run(logs).stdout, SECONDS, f"{self.name} is reported")


def kill(machine: Machine, unit: str) -> None:
    """Kill a service's process with -9, and wait until systemd has started it again."""
    restarts = int(machine.show(unit, "NRestarts"))
    machine.check(f"kill -9 {machine.show(unit, 'MainPID')}")
    until(lambda: int(machine.show(unit, "NRestarts")) > restarts, SECONDS, f"{unit} is started again")


def test_up_is_started_again_and_its_pods_go_on(up: Machine) -> None:
    job = WaitingJob(up, "waits", STATE, UP)
    kill(up, "jobplane")
    assert job.runs()
    up.check("systemctl stop jobplane")
    assert (up.show("jobplane", "ActiveState"), up.show("jobplane", "Result")) == ("inactive", "success")
    assert job.runs()
    up.check("systemctl start jobplane")
    job.end()


def test_each_part_is_a_service(parts: Machine) -> None:
    waits = "waiting for the database"
    until(lambda: waits in parts.journal("jobplane-api", "--priority warning"), SECONDS, "the journal has the warning")
    parts.check(in_api_settings("/opt/jobplane/bin/jobplane migrate"))
    authority = f"--server https://api:6443 --ca-file {STATE}/tls/ca.crt"
    until(lambda: parts.run(f"test -e {STATE}/tls/ca.crt").returncode == 0, SECONDS, "the API has its certificates")
    parts.check("install -d -m 0700 ~/.jobplane")
    parts.check(in_api_settings(f"/opt/jobplane/bin/jobplane kubeconfig {authority} >~/.jobplane/kubeconfig"))
    until(lambda: _serves(parts), SECONDS, "the API serves")
    refused = parts.run(f"jobplane token create {authority}").stderr
    assert refused.startswith("Unauthorized: pass --token-file"), refused
    parts.check("systemctl enable --now jobplane-controllers")
    _, _, *words = parts.check("jobplane token create").split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    parts.check(
        "install -m 0600 /dev/stdin /etc/jobplane/agent.env <<END\n"
        f"JOBPLANE_SERVER={given['--server']}\n"
        f"JOBPLANE_JOIN_TOKEN={given['--join-token']}\n"
        f"JOBPLANE_CA_HASH={given['--ca-hash']}\n"
        "END"
    )
    parts.check("systemctl start jobplane-agent")
    job = WaitingJob(parts, "waits", "/root")
    for unit in ("jobplane-api", "jobplane-controllers", "jobplane-agent"):
        kill(parts, unit)
    assert job.runs()
    # Of one user each: a unit that shared its folder with another would take all that is in it.
    owners = f"stat --format %U {STATE} {STATE}/tls/ca.key {AGENT_STATE} {AGENT_STATE}/agent"
    assert parts.check(owners).split() == ["jobplane", "jobplane", "root", "root"]
    parts.check("systemctl stop jobplane-agent")
    assert job.runs()
    parts.check("systemctl start jobplane-agent")
    job.end()


def test_what_cannot_run_is_not_started_again_and_says_why(machine: Machine) -> None:
    machine.check("install -D -m 0600 /dev/stdin /etc/jobplane/agent.env <<<JOBPLANE_SERVER=api:6443")
    machine.check("systemctl restart jobplane-agent")
    until(lambda: machine.show("jobplane-agent", "ActiveState") == "failed", SECONDS, "the agent has ended")
    assert machine.show("jobplane-agent", "ExecMainStatus") in ("2", "78")
    assert machine.show("jobplane-agent", "NRestarts") == "0"
    assert "JOBPLANE_SERVER" in machine.journal("jobplane-agent", "--priority err", "--lines 1")
