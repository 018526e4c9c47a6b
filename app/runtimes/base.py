"""Runtime interface between the agent and what runs containers, and its promises.

CRI-shaped: a sandbox for each pod, containers in it, both idempotent. A container is known by (pod uid, name, attempt).
`list()` is the truth; `events()` only wakes. The agent, not the runtime, owns volumes, order, restarts, back-off,
probes and garbage collection. One conformance suite (tests/runtimes) holds for every runtime.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from app.structured_logging import ContainerFields

# Of pods that are plain processes: by a user of their own, by a sandbox (bubblewrap), or both.
Isolation = Literal["user-and-sandbox", "user", "sandbox", "none"]


class ContainerKey(NamedTuple):
    """One run of a container: attempt 0 is the first, each restart adds one."""

    pod_uid: str
    name: str
    attempt: int

    @property
    def log_fields(self) -> ContainerFields:
        return {"pod_uid": self.pod_uid, "container": self.name, "attempt": self.attempt}


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder or file of the host, seen by the container at `target`."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Dns:
    """Content of a pod's resolv.conf."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


class Port(NamedTuple):
    """A port of a pod that is to be reached at one of the node: at that address of it, or, without one, at any."""

    protocol: str
    number: int
    on_node: int
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """Sandbox of a pod: what its containers share. `annotations` reach the simulated runtime's `jobplane.dev/simulate`.

    host_network, host_pid, host_ipc: the pod shares these with the node.
    share_pid: its containers see each other's processes.
    privileged: some container of it is.
    namespace_uid: UID of the namespace, if that is not privileged: then the process runtime isolates the pod's containers
                from the node and from other namespaces. None: as its sandbox is, which must stand.
    dns:        None leaves it to the runtime.
    ports:      published where pods have a network of their own.
    handler:    of its RuntimeClass, as the engine knows it; empty: the engine's default.
    """

    pod_uid: str
    namespace: str
    name: str
    hostname: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_pid: bool = False
    privileged: bool = False
    namespace_uid: str | None = ""
    dns: Dns | None = None
    ports: Sequence[Port] = ()
    handler: str = ""


class Sandbox(NamedTuple):
    """Sandbox of a pod as it is. `ip` is empty where pods share the node's address.

    is_isolated: by the process runtime; `user` is the user, and group, that its containers then run as, if not the agent's.
    """

    pod_uid: str
    ip: str = ""
    is_isolated: bool = False
    user: int | None = None


@dataclass(frozen=True, kw_only=True)
class ResourceLimits:
    """Limits and requests of a container: thousandths of a CPU, bytes of memory; None: no bound."""

    cpu: int | None = None
    memory: int | None = None
    cpu_request: int | None = None


@dataclass(frozen=True, kw_only=True)
class Security:
    """Rights of a container; None and empty leave it to the image and the runtime.

    groups:   supplementary ones, fsGroup among them.
    add, drop: capabilities, without CAP_; ALL stands for all.
    seccomp:  RuntimeDefault, Unconfined, or the path of a profile.
    """

    user: int | None = None
    group: int | None = None
    groups: Sequence[int] = ()
    add: Sequence[str] = ()
    drop: Sequence[str] = ()
    privileged: bool = False
    read_only_root: bool = False
    no_new_privileges: bool = False
    seccomp: str = ""


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """Fully resolved: nothing is left to look up.

    command:   replaces the image's entry point, unless empty; `args` its arguments (its own count only without command).
    stdin, tty: whether standard input stays open for `attach`, and whether there is a terminal.
    stdin_once: standard input ends with the first who attached to it.
    devices:   device files of the host that it may use.
    hostname:  of the pod, for a runtime whose sandboxes have none.
    """

    key: ContainerKey
    image: str
    command: Sequence[str]
    env: Mapping[str, str]
    args: Sequence[str] = ()
    working_dir: str = ""
    mounts: Sequence[Mount] = ()
    termination_message_path: str = "/dev/termination-log"
    limits: ResourceLimits = ResourceLimits()
    security: Security = Security()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    devices: Sequence[str] = ()
    hostname: str = ""

    @property
    def argv(self) -> list[str]:
        """The whole command line, where there is no image to fill it up."""
        return [*self.command, *self.args]


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerStatus:
    """Status of one container. `exit_code` is None while it runs, and if it ended and the code is unknown.

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
    """Usage of a running container: CPU time in nanoseconds since it started, and bytes of memory and disk now.

    Disk counts what it has written outside of volumes, log included, as far as that is known cheaply. `peak` is the most memory
    that it has used so far, where the machine remembers; 0 if it does not. `folders`: what is in them counts as disk, too; to
    look into them takes its time.
    """

    key: ContainerKey
    cpu: int
    memory: int
    disk: int = 0
    peak: int = 0
    folders: tuple[Path, ...] = ()


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


class CreateError(Exception):
    """A sandbox or container that cannot be made, and so was never started; it may be tried again."""


class Unsupported(Exception):
    """This runtime, or this machine, has no such thing; the text says what is missing."""


class Image(NamedTuple):
    """An image that the node has: its id, the names that it goes by, its bytes, and the user it runs as ("": root)."""

    id: str
    names: Sequence[str]
    size: int
    user: str = ""


class Login(NamedTuple):
    """To a registry."""

    username: str
    password: str


class UnfitMachineError(RuntimeError):
    """A runtime cannot be had on this machine, or in this folder; the text says what to change."""


class PullError(Exception):
    """An image that cannot be had; `reason` as the kubelet gives it: ErrImagePull, InvalidImageName, ..."""

    def __init__(self, message: str, reason: str = "ErrImagePull") -> None:
        super().__init__(message)
        self.reason = reason


class Session(Protocol):
    """A command that runs in a container, or a container's own process, with its streams."""

    async def write(self, data: bytes) -> None:
        """To its standard input; harmless once that has ended."""

    async def end_input(self) -> None: ...

    async def resize(self, width: int, height: int) -> None: ...

    def output(self) -> AsyncIterator[tuple[Literal["stdout", "stderr"], bytes]]:
        """Everything that it writes, until it has ended. A terminal has stdout only. May be read once."""

    async def exit_code(self) -> int:
        """Once `output` is through. Raises StartError if the engine reports only now that the command could not be run."""

    async def close(self) -> None:
        """Hang up. A command started by `execute` is killed; what was attached to goes on."""


class Pipe(Protocol):
    """A connection to a port in a pod."""

    async def read(self) -> bytes:
        """Some bytes; empty at the end."""

    async def write(self, data: bytes) -> None: ...

    async def end(self) -> None:
        """Nothing more will be written."""

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RuntimeInfo:
    """Name and capabilities of a runtime; `name` and `version` end up in the Node's containerRuntimeVersion.

    `store`: a folder on the disk that images fill, if it is known.
    refuses_limits: why no limits can be kept, and what to do; containers that have some must not start then. Empty: they are
                    kept, or ignored because somebody said so.
    """

    name: str
    version: str
    survives_agent: bool  # containers go on when the agent is killed
    mounts: bool = True  # containers may have mounts; without this a mount is a StartError
    runs_commands: bool = True  # False: it is simulated
    host_programs: bool = False  # containers run programs of the machine; `image` is only recorded
    images: bool = False  # containers come from images, which are pulled; without this `image` means nothing
    pod_network: bool = False  # every pod has an address of its own
    handlers: bool = False  # of RuntimeClasses
    limits: bool = False  # memory and CPU are kept within limits, and OOMKilled is reported
    security: bool = False  # users, capabilities, a read-only root
    seccomp: bool = False  # seccomp profiles, a default one among them
    terminals: bool = False  # `tty` works
    isolation: Isolation | None = None  # of pods whose namespace is not privileged; None: containers isolate all alike
    rootless: bool = False  # containers have no more rights than the agent's user, who is not root
    refuses_limits: str = ""
    store: str = ""


class Runtime(Protocol):
    """Every call may be repeated without harm. Times come from the clock that the runtime was given."""

    async def info(self) -> RuntimeInfo: ...

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """Make the pod's sandbox. An existing sandbox of the same uid is kept, if it still stands.

        Raises CreateError.
        """

    async def sandboxes(self) -> Sequence[Sandbox]:
        """Every sandbox that stands, also those of earlier agents."""

    async def images(self) -> Sequence[Image]:
        """Images of the node; none where images mean nothing."""

    async def pull(self, image: str, login: Login | None = None) -> str:
        """Fetch an image; its id. Raises PullError."""

    async def remove_image(self, image_id: str) -> None:
        """With all its names; fine if it is gone. One in use is kept."""

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool = False) -> Session:
        """Run a command in a running container. Raises StartError if it cannot be, Unsupported."""

    async def attach(self, key: ContainerKey) -> Session:
        """The streams of a running container's own process, from now on. Raises Unsupported."""

    async def dial(self, pod_uid: str, port: int) -> Pipe:
        """Connect to a port on a pod's loopback. Raises ConnectionError, Unsupported."""

    async def start_container(self, spec: ContainerSpec) -> None:
        """Start it unless it was ever started. Raises StartError, and CreateError while there is nothing to start."""

    async def stop_container(self, key: ContainerKey, grace: timedelta) -> None:
        """SIGTERM, and SIGKILL after `grace`. Returns when it has ended; fine if it has, or never was."""

    async def remove_container(self, key: ContainerKey) -> None:
        """Forget one that has ended, with its log and files; its pod lives on. Fine if it is gone; one that runs is kept."""

    async def remove_sandbox(self, pod_uid: str) -> None:
        """Kill what still runs and forget the pod: its containers, their logs and files."""

    async def list(self) -> list[ContainerStatus]:
        """Every container, ended ones included, also those of earlier agents: the truth at start and on relist."""

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        """One container as in `list`, cheaply: for use after an event. None if it is not known."""

    async def usage(self) -> Sequence[ContainerUsage]:
        """Usage of the containers that run; cheap, however many there are. One that cannot be measured is left out."""

    def events(self) -> AsyncIterator[ContainerKey]:
        """Keys of containers that started or ended. Hints: one may be missed; `list()` is the truth.

        Subscribes at the call, not at the first step; each subscriber gets everything from then on.
        """

    def log_events(self) -> AsyncIterator[ContainerKey]:
        """Keys of containers whose log has grown. Hints like `events`; `read_log` is the truth."""

    async def read_log(self, key: ContainerKey, offset: int, limit: int) -> LogChunk:
        """At most `limit` bytes of log from `offset`; empty data when there is no more (yet).

        Of a container that `list` or `status` has called exited, empty data means that the log is complete.
        """

    def release_log(self, key: ContainerKey, offset: int) -> None:
        """What is before `offset` is not read again: its disk space may be freed."""

    async def close(self) -> None:
        """Release what this process holds. Containers stay."""
