"""The interface between the agent and whatever runs containers, and what it promises.

CRI-shaped: a sandbox for each pod, containers in it, both idempotent. A container is known by (pod uid, name, attempt).
`list()` is the truth; `events()` only wakes. The agent, not the runtime, owns volumes, order, restarts, back-off,
probes and garbage collection. One conformance suite (tests/runtimes) holds for every runtime.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, Protocol


class ContainerKey(NamedTuple):
    """Which run of which container: attempt 0 is the first, each restart adds one."""

    pod_uid: str
    name: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder or file of the host, seen by the container at `target`."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """A pod's shared surroundings. `annotations` reach the simulated runtime's `jobplane.dev/simulate`."""

    pod_uid: str
    namespace: str
    name: str
    hostname: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """Fully resolved: nothing is left to look up. `command` is argv; empty means the image's own."""

    key: ContainerKey
    image: str
    command: Sequence[str]
    env: Mapping[str, str]
    working_dir: str = ""
    mounts: Sequence[Mount] = ()
    termination_message_path: str = "/dev/termination-log"


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerStatus:
    """How one container fares. `exit_code` is None while it runs, and if it ended and nobody knows how.

    A container ended by signal n has exit code 128 + n. `reason`: Completed, Error, OOMKilled, StartError,
    ContainerStatusUnknown. `termination_message` is at most 4096 bytes. Times are in whole seconds. `id` comes without
    the `name://` that Kubernetes puts in front.
    """

    key: ContainerKey
    state: Literal["created", "running", "exited"]
    id: str
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    termination_message: str = ""


class ContainerUsage(NamedTuple):
    """What a running container uses: CPU time in nanoseconds since it started, and bytes of memory now."""

    key: ContainerKey
    cpu: int
    memory: int


class LogChunk(NamedTuple):
    """Bytes of a container's log from `offset` on, each line as `<RFC3339Nano> stdout|stderr F|P <text>\\n`.

    F is a whole line, P a piece without a newline, which the next record of that stream goes on with. The same offset
    gives the same bytes for ever, also to a restarted agent. A chunk may end in the middle of a record.
    """

    offset: int
    data: bytes


class StartError(Exception):
    """A container that cannot be started: `exit_code` 127 (not found), 126 (not executable) or 128."""

    def __init__(self, message: str, exit_code: int = 128) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class RuntimeInfo:
    """What a runtime is and can do; `name` and `version` end up in the Node's containerRuntimeVersion."""

    name: str
    version: str
    survives_agent: bool  # containers go on when the agent is killed
    mounts: bool = True  # containers may have mounts; without this a mount is a StartError
    runs_commands: bool = True  # False: it only pretends


class Runtime(Protocol):
    """Every call may be repeated without harm. Times come from the clock that the runtime was given."""

    async def info(self) -> RuntimeInfo: ...

    async def run_sandbox(self, spec: SandboxSpec) -> None:
        """Prepare the pod's surroundings. An existing sandbox of the same uid is kept."""

    async def start_container(self, spec: ContainerSpec) -> None:
        """Start it unless it was ever started. Raises StartError."""

    async def stop_container(self, key: ContainerKey, grace: timedelta) -> None:
        """SIGTERM, and SIGKILL after `grace`. Returns when it has ended; fine if it has, or never was."""

    async def remove_sandbox(self, pod_uid: str) -> None:
        """Kill what still runs and forget the pod: its containers, their logs and files."""

    async def list(self) -> list[ContainerStatus]:
        """Every container that is known, ended ones included, whoever started it: the truth at start and on relist."""

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        """One container as `list` tells it, cheaply: what to ask after an event. None if it is not known."""

    async def usage(self) -> Sequence[ContainerUsage]:
        """What the containers that run use; cheap, however many there are. One that cannot be told is left out."""

    def events(self) -> AsyncIterator[ContainerKey]:
        """Keys of containers that started or ended. Hints: one may be missed, then `list()` tells.

        Subscribes at the call, not at the first step; each subscriber is told everything from then on.
        """

    def logged(self) -> AsyncIterator[ContainerKey]:
        """Keys of containers whose log has grown. Hints like `events`; `read_log` tells."""

    async def read_log(self, key: ContainerKey, offset: int, limit: int) -> LogChunk:
        """At most `limit` bytes of log from `offset`; empty data when there is no more (yet).

        Of a container that `list` or `status` has called exited, empty data means that the log is complete.
        """

    async def close(self) -> None:
        """Let go of what this process holds. Containers stay."""
