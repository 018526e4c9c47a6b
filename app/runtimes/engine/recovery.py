"""Recovery: what is true of containers whose engine was killed. `EngineRuntime` calls it; each engine implements `Recovery`.

Promises: no container is lost, none runs twice, exit codes and logs are true. What a killed engine leaves of its own (cgroups,
shims, network namespaces and links, half-made folders) stays: no container of a pod ever uses it again.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple, Protocol

from app.runtimes.base import ContainerKey
from app.runtimes.linux import process_table

_SHIM = "containerd-shim"


class StartRefusal(Enum):
    """Meaning of an error with which an engine answers a start."""

    FAILED = auto()  # the container cannot be started: a StartError
    STARTED = auto()  # it runs already: an agent that died had started it
    VOID = auto()  # it never ran and never will, as its engine was killed over it: it has to be made anew


class VoidError(Exception):
    """A container never ran and never will: it has to be made anew."""


class Recovery(Protocol):
    """For one engine. Container ids are the engine's."""

    def is_void(self, key: ContainerKey) -> bool:
        """Return whether the container never ran and never will, and so has to be made anew."""

    async def has_begun_unanswered(self, key: ContainerKey, id_: str) -> bool:
        """Return whether a container runs although its engine went away before it answered the start."""

    async def judge_refusal(self, key: ContainerKey, id_: str, message: str) -> StartRefusal:
        """Return what an engine's refusal to start a container means."""

    def keep_end(self, key: ContainerKey, code: int | None, at: float | None = None) -> None:
        """An engine reports an end: it may be killed before it writes that down. `at`: as a file's time."""

    async def clear(self, id_: str) -> None:
        """Kill what may run of a container that is void. Blocks nothing."""


class Shim(NamedTuple):
    """Process between containerd and containers. `id`: of the container that it was made for; `address`: containerd's socket."""

    pid: int
    id: str
    address: str
    namespace: str


def shims() -> Iterator[Shim]:
    """All of this machine."""
    for pid in process_table.pids():
        with suppress(OSError, ValueError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if os.path.basename(words[0]).startswith(_SHIM):
                id_, address, namespace = (words[words.index(f"-{each}") + 1] for each in Shim._fields[1:])
                yield Shim(pid, id_, os.path.realpath(address), namespace)


def belongs_to(pid: int, container_id: str) -> bool:
    """Whether a process is a container's, by its cgroup. Never if the engine is in a virtual machine: its pids are others."""
    with suppress(OSError):
        return container_id in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    return False


def kill_processes(container_id: str) -> None:
    """All of a container that, as far as its engine knows, does not run; its shim, too. Blocks."""
    found = [pid for pid in process_table.pids() if belongs_to(pid, container_id)]
    for pid in (*found, *(each.pid for each in shims() if each.id == container_id)):
        process_table.kill(pid, signal.SIGKILL)
