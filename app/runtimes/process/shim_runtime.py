"""Base class of the runtimes whose containers a shim watches over (process, oci): starts, ends, adoption, logs.

A small shell (shim.sh) in a session of its own watches over each container and writes its exit code to disk, so that
containers and codes survive the agent's kill -9; a new agent adopts what it finds. Ends are noticed through pidfds,
output through inotify.
"""

import asyncio
import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    ContainerUsage,
    LogChunk,
    Pipe,
    Session,
    StartError,
)
from app.runtimes.linux import block_groups, process_table
from app.runtimes.linux import cgroups as cgroup
from app.runtimes.linux.cgroups import Cgroups
from app.runtimes.linux.folder_removal import FolderRemover
from app.runtimes.linux.process_table import Identity
from app.runtimes.process import container as process_container
from app.runtimes.process import files, sessions
from app.runtimes.process import launch as process_launch
from app.runtimes.process import status as process_status
from app.runtimes.process import usage as process_usage
from app.runtimes.process.attach import Attached
from app.runtimes.process.container import ProcessContainer
from app.runtimes.process.files import Folder
from app.runtimes.process.launch import Launch
from app.runtimes.process.logs import SHARE, Follower, Log
from app.runtimes.wakeups import Hints
from app.structured_logging import Logger

logger = Logger(__name__)


class ShimRuntime(ABC):
    """See `base.Runtime`. Made inside a running event loop. One at a time may use `root`: RuntimeError otherwise.

    A subclass calls `_begin` at the end of its own `__init__`.

    cgroups: where to make cgroups for each container, with its limits.
    inside:  words before a command by which it may delete what containers have written.
    """

    def __init__(self, root: Path, cgroups: Cgroups | None, inside: Sequence[str] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._root = root.resolve()
        self._cgroups = cgroups
        self._setsid = process_launch.program("setsid")
        self._boot = process_table.boot_id()
        self._pods: dict[str, dict[ContainerKey, ProcessContainer]] = {}
        self._events, self._logged = Hints(), Hints()
        self._lock = files.lock(self._root)
        block_groups.spread_children(self._root)
        process_launch.keep_files_private()
        self._follower = Follower(self._logged.add)
        self._remover = FolderRemover(self._root, inside)

    @abstractmethod
    def _resolve(self, folder: Folder, spec: ContainerSpec) -> Launch:
        """What to execute. Raises StartError, OSError, ValueError."""

    async def _prepare(self, spec: ContainerSpec) -> None:
        """Before anything is made. Raises CreateError, StartError."""
        return

    async def _await_start(self, container: ProcessContainer) -> None:
        """Return once it has started, as far as that can be told. Raises StartError."""
        return

    @abstractmethod
    def _adopt_sandbox(self, pod_uid: str) -> None:
        """Of a pod that is on disk, but not known."""

    @abstractmethod
    def _forget_sandbox(self, pod_uid: str) -> None:
        """Of a pod that is known, but no longer on disk."""

    async def _end_sandbox(self, pod_uid: str) -> None:
        """End what the pod's containers, which have ended, shared."""
        return

    def _container_of(
        self,
        folder: Folder,
        status: ContainerStatus,
        cgroups: Sequence[Path],
        shim: Identity | None = None,
        pidfd: int = -1,
    ) -> ProcessContainer:
        return ProcessContainer(folder=folder, log=Log(folder), status=status, shim=shim, pidfd=pidfd, cgroups=cgroups)

    def _read_end(self, folder: Folder) -> ContainerStatus | None:
        """The final word; None if there is none yet."""
        return process_status.read_end(folder)

    def _end_leftover_commands(self, folder: Folder) -> None:
        """Kill commands of an agent that is dead."""
        sessions.end_leftovers(folder)

    def _kill_lost(self, folder: Folder) -> None:
        """Kill what goes on of a container whose shim is dead."""
        main, shim = folder.main(), folder.shim()
        if main and shim and process_table.lives(Identity(main.pid, main.start, shim.boot), self._boot):
            process_table.kill(main.pid, signal.SIGKILL)
            process_table.kill_group(main.pid)
            process_table.kill_session(main.pid)

    async def start_container(self, spec: ContainerSpec) -> None:
        await asyncio.sleep(0)  # of many starts at once, each lets the loop have its turn
        pod = self._pods.get(spec.key.pod_uid)
        if pod is None:
            raise StartError(f'pod "{spec.key.pod_uid}" has no sandbox')
        if spec.key in pod:
            return
        await self._prepare(spec)
        try:
            folder = Folder(self._root, spec.key)
            created = folder.create()
        except (OSError, ValueError) as error:
            raise StartError(str(error)) from error
        if created:
            try:
                with folder.open_folder():
                    pod[spec.key] = await self._start(folder, spec)
                await self._await_start(pod[spec.key])
            except StartError as error:
                if spec.key not in pod and self._pods.get(spec.key.pod_uid) is pod:
                    verdict = process_status.Conclusion(error.exit_code, "StartError", str(error))
                    pod[spec.key] = self._ended_container(folder, process_status.conclude(folder, verdict))
                raise
            finally:
                self._events.add(spec.key)

    async def attach(self, key: ContainerKey) -> Session:
        container = self._running(key)
        return Attached(container.folder, container.ended)

    async def dial(self, pod_uid: str, port: int) -> Pipe:
        if pod_uid not in self._pods:
            raise ConnectionError(f'pod "{pod_uid}" has no sandbox')
        return await sessions.dial(port)

    async def stop_container(self, key: ContainerKey, grace: timedelta) -> None:
        container = self._container(key)
        if container is None or container.ended.is_set():
            return
        await container.stop(grace)

    async def remove_container(self, key: ContainerKey) -> None:
        container = self._container(key)
        if container is None or not container.ended.is_set():
            return
        del self._pods[key.pod_uid][key]
        await self._remover.remove(container.folder.path)
        await cgroup.remove_until_gone(container.cgroups)

    async def remove_sandbox(self, pod_uid: str) -> None:
        pod = self._pods.get(pod_uid)
        if pod is None:
            return
        while alive := [container for container in pod.values() if not container.ended.is_set()]:
            await asyncio.gather(*(container.kill() for container in alive))
        await self._end_sandbox(pod_uid)
        self._pods.pop(pod_uid, None)
        self._forget_sandbox(pod_uid)
        await self._remover.remove(self._root / pod_uid)
        for container in pod.values():
            await cgroup.remove_until_gone(container.cgroups)

    async def list(self) -> list[ContainerStatus]:
        self._adopt()
        return [container.status for pod in self._pods.values() for container in pod.values()]

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        container = self._container(key)
        return container.status if container else None

    async def usage(self) -> Sequence[ContainerUsage]:
        running = [
            process_usage.Running(container.folder.key, main.pid, container.cgroups, container.folder.path)
            for pod in self._pods.values()
            for container in pod.values()
            if not container.ended.is_set() and (main := container.first())
        ]
        return await asyncio.to_thread(process_usage.of_containers, running)

    def events(self) -> AsyncIterator[ContainerKey]:
        return self._events.read()

    def log_events(self) -> AsyncIterator[ContainerKey]:
        return self._logged.read()

    async def read_log(self, key: ContainerKey, offset: int, limit: int) -> LogChunk:
        container = self._container(key)
        if container is None:
            return LogChunk(offset, b"")
        try:
            data = container.log.read(offset, limit)
            if not data and container.log.drain(SHARE, last=container.ended.is_set()):
                data = container.log.read(offset, limit)
        except OSError as error:
            logger.warning("cannot read the log of a container", **key.log_fields, error=error)
            data = b""
        return LogChunk(offset, data)

    def release_log(self, key: ContainerKey, offset: int) -> None:
        container = self._container(key)
        with suppress(OSError):
            container.log.release(offset) if container else None

    async def close(self) -> None:
        self._follower.close()
        self._remover.close()
        for pod in self._pods.values():
            for container in pod.values():
                self._unwatch(container)
        self._events.close()
        self._logged.close()
        if self._cgroups:
            self._cgroups.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # What is on disk

    def _begin(self) -> None:
        """Adopt what earlier agents left, and remove what they left of pods that are gone."""
        self._adopt()
        if self._cgroups is not None:
            self._cgroups.sweep(self._pods)

    def _adopt(self) -> None:
        """Takes over pods that are on disk but not known, and forgets known ones that are not on disk."""
        found = set(files.pods(self._root))
        for pod_uid in found - self._pods.keys():
            self._adopt_sandbox(pod_uid)
            folders = [Folder(self._root, key) for key in files.containers(self._root, pod_uid)]
            self._pods[pod_uid] = {
                folder.key: self._adopt_container(folder) for folder in folders if self._was_let_go(folder)
            }
        for pod_uid in self._pods.keys() - found:
            self._forget_sandbox(pod_uid)
            for container in self._pods.pop(pod_uid).values():
                self._unwatch(container)
                container.ended.set()

    def _was_let_go(self, folder: Folder) -> bool:
        """If not, an agent died while it was starting this one, and nothing is left: the next start is the first.

        What a crash of the machine took may have been the word that it was: it counts as let go.
        """
        if (shim := folder.shim()) and (pidfd := self._open_pidfd(shim)) >= 0:
            process_container.await_go(folder, pidfd)
            os.close(pidfd)
        if folder.was_let_go() or (shim and shim.boot != self._boot):
            return True
        shutil.rmtree(folder.path, ignore_errors=True)
        cgroup.remove(self._cgroups_of(folder))
        return False

    def _adopt_container(self, folder: Folder) -> ProcessContainer:
        shim = folder.shim()
        if shim and shim.boot == self._boot:  # else their numbers are others'
            self._end_leftover_commands(folder)
        pidfd = self._open_pidfd(shim) if shim else -1  # before the code is read: a code may come at any time
        status = self._read_end(folder)
        if status is None and pidfd >= 0:
            self._follower.look(folder.key)  # at what was written meanwhile
            return self._watch_container(folder, shim, pidfd, self._cgroups_of(folder))
        if pidfd >= 0:
            os.close(pidfd)
        return self._ended_container(folder, status or self._conclude_lost(folder))

    def _open_pidfd(self, shim: Identity) -> int:
        """A pidfd that is sure to be the shim's; -1 if it is dead."""
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(shim.pid)
            if process_table.lives(shim, self._boot):
                return pidfd
            os.close(pidfd)
        return -1

    def _conclude_lost(self, folder: Folder) -> ContainerStatus:
        """The shim is dead and left no code: what it watched over may not go on."""
        cgroup.kill_all(self._cgroups_of(folder))
        self._kill_lost(folder)
        return process_status.conclude_lost(folder, self._boot)

    # Starts and ends

    async def _start(self, folder: Folder, spec: ContainerSpec) -> ProcessContainer:
        """Raises StartError; then nothing runs."""
        try:
            launch = self._resolve(folder, spec)
            if self._cgroups and not launch.cgroups:
                launch = replace(launch, cgroups=self._cgroups.make(spec.key, spec.limits))
            shim, pidfd = await self._spawn(folder, spec, launch)
        except (OSError, ValueError) as error:
            raise StartError(f'exec: "{spec.argv[0] if spec.argv else ""}": {error}') from error
        return self._watch_container(folder, shim, pidfd, launch.cgroups)

    async def _spawn(self, folder: Folder, spec: ContainerSpec, launch: Launch) -> tuple[Identity, int]:
        """Start the shim, and write down who it is: with a pidfd. Raises OSError, ValueError, StartError; then nothing runs."""
        shims: list[tuple[Identity, int]] = []
        try:
            process_launch.spawn(
                folder, launch, self._setsid, lambda pid: shims.append(self._record(folder, spec, launch, pid))
            )
        except BaseException:
            for _, pidfd in shims:
                os.close(pidfd)
            raise
        return shims[0]

    def _record(self, folder: Folder, spec: ContainerSpec, launch: Launch, pid: int) -> tuple[Identity, int]:
        """Raises OSError."""
        pidfd = os.pidfd_open(pid)
        try:
            process = process_table.look(pid)
            shim = Identity(pid, process.start if process else 0, self._boot)
            folder.record(process_launch.spec_record(spec, launch), shim)
        except BaseException:
            os.close(pidfd)
            raise
        return shim, pidfd

    def _watch_container(
        self, folder: Folder, shim: Identity | None, pidfd: int, cgroups: Sequence[Path]
    ) -> ProcessContainer:
        container = self._container_of(folder, process_status.running_status(folder), cgroups, shim, pidfd)
        self._loop.add_reader(pidfd, self._on_shim_end, container)
        self._follower.follow(folder, container.log)
        return container

    def _ended_container(self, folder: Folder, status: ContainerStatus) -> ProcessContainer:
        container = self._container_of(folder, status, self._cgroups_of(folder))
        container.ended.set()
        return container

    def _on_shim_end(self, container: ProcessContainer) -> None:
        folder = container.folder
        process_launch.reap(container.pidfd)
        for command in container.commands:
            command.kill()
        self._unwatch(container)
        if not cgroup.remove(container.cgroups):  # something of it goes on
            cgroup.kill_all(container.cgroups)
        with suppress(OSError), folder.open_folder():
            self._finish(container)
        if container.status.state != "exited":  # the folder is gone
            self._finish(container)
        container.ended.set()
        self._events.add(folder.key)

    def _finish(self, container: ProcessContainer) -> None:
        folder = container.folder
        container.status = self._read_end(folder) or self._conclude_lost(folder)
        with suppress(OSError):
            if container.log.drain(SHARE, last=True):
                self._logged.add(folder.key)

    def _cgroups_of(self, folder: Folder) -> Sequence[Path]:
        """As recorded; where nothing was, as they would be."""
        return folder.cgroups() or (self._cgroups.paths(folder.key) if self._cgroups else [])

    def _unwatch(self, container: ProcessContainer) -> None:
        self._follower.forget(container.folder.key)
        if container.pidfd >= 0:
            self._loop.remove_reader(container.pidfd)
            os.close(container.pidfd)
            container.pidfd = -1

    def _running(self, key: ContainerKey) -> ProcessContainer:
        container = self._container(key)
        if container is None or container.ended.is_set():
            raise StartError("the container is not running")
        return container

    def _container(self, key: ContainerKey) -> ProcessContainer | None:
        return self._pods.get(key.pod_uid, {}).get(key)
