"""Runtime `process`: containers are plain processes of this host: no engine, no images, no set-up. The default on Linux.

A shim watches over each container, and both survive the agent (`shim_runtime`).

What it cannot do: there is no isolation. Containers share the host's files, processes, network and IPC, whatever their pod
says of hostNetwork, hostPID, hostIPC or shareProcessNamespace, and must be trusted. Only with cgroups are limits kept;
without them a process that has made a session of its own outlives its container, whose process group ends with it, and
whose session ends when it is stopped. Mounts and a read-only root need bubblewrap, under which no process gains privileges.
Other users and fewer capabilities than the agent's need root and setpriv; there are no seccomp profiles. The shell adds
PWD to the environment; where /bin/sh is bash, also `_` and SHLVL.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from app.runtimes.bare import Imageless
from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    CreateError,
    RuntimeInfo,
    Sandbox,
    SandboxSpec,
    Session,
    StartError,
)
from app.runtimes.linux.cgroups import Cgroups
from app.runtimes.linux.process_table import Identity
from app.runtimes.process import isolation, mounts, pod_users, security_context, sessions
from app.runtimes.process import launch as process_launch
from app.runtimes.process.container import ProcessContainer
from app.runtimes.process.files import Folder, check_name
from app.runtimes.process.isolation import SandboxRecord, View
from app.runtimes.process.launch import Launch
from app.runtimes.process.pod_users import PodUsers
from app.runtimes.process.shim_runtime import ShimRuntime

VERSION = "1.0"
HOME = ".home"  # a pod's own folder; no container can have a name with a dot in front


class ProcessRuntime(Imageless, ShimRuntime):
    """See `base.Runtime`. Made inside a running event loop. One at a time may use `root`: RuntimeError otherwise.

    cgroups:    where to make cgroups for each container, with its limits.
    bubblewrap: the program that mounts volumes, "" for none; by default `bwrap` if there is one that works.
    private:    folders of the agent, which no isolated pod sees.
    users:      for isolated pods.
    """

    def __init__(
        self,
        root: Path,
        *,
        cgroups: Cgroups | None = None,
        bubblewrap: str | None = None,
        private: Sequence[Path] = (),
        users: str = pod_users.DEFAULT_RANGE,
    ) -> None:
        super().__init__(root, cgroups)
        self._bubblewrap = bubblewrap
        self._agent = security_context.AgentRights.here()
        self._private, self._user_range = (self._root, *private), pod_users.parse_range(users)
        self._isolated: dict[str, SandboxRecord] = {}
        isolation.remove_unfinished(self._root)
        self._users = PodUsers(self._root / ".users", self._user_range)
        self._begin()

    async def info(self) -> RuntimeInfo:
        return RuntimeInfo(
            name="process",
            version=VERSION,
            survives_agent=True,
            host_programs=True,
            mounts=bool(self._usable_bubblewrap()),
            limits=self._cgroups is not None and self._cgroups.limits,
            security=self._agent.may_change and bool(self._usable_bubblewrap()),
            terminals=True,
            isolation=isolation.how(self._agent, self._user_range, self._usable_bubblewrap()),
        )

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        pod = self._root / check_name(spec.pod_uid)
        if not pod.exists():
            self._make_sandbox(pod, spec.namespace_uid)
        (pod / HOME).mkdir(mode=0o700, exist_ok=True)
        self._pods.setdefault(spec.pod_uid, {})
        return self._sandbox(spec.pod_uid)

    def _make_sandbox(self, pod: Path, namespace_uid: str | None) -> None:
        """Raises CreateError, OSError."""
        if namespace_uid is None:
            raise CreateError("the sandbox of the pod is gone")
        if not namespace_uid:
            pod.mkdir(mode=0o700)
            return
        isolation.refuse_if(isolation.find_obstacle(self._agent, self._user_range, self._usable_bubblewrap()))
        user = self._users.user_of(namespace_uid) if self._agent.user == 0 else None
        self._isolated[pod.name] = SandboxRecord(namespace_uid, user)
        isolation.make_sandbox(pod, self._isolated[pod.name])

    async def sandboxes(self) -> Sequence[Sandbox]:
        return [self._sandbox(uid) for uid in self._pods]

    def _sandbox(self, pod_uid: str) -> Sandbox:
        record = self._isolated.get(pod_uid)
        return Sandbox(pod_uid, is_isolated=record is not None, user=record.user if record else None)

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool = False) -> Session:
        container = self._running(key)
        main = await container.main()
        target = await container.target(main)
        if main is None or target is None or container.shim is None:
            raise StartError("the container is not running")
        user = self._sandbox(key.pod_uid).user
        if user is not None:
            await sessions.wait_until_runs_as(target, user)
        elif target != main.pid:
            await sessions.wait_until_settled(target, main.pid)
        place = self._place(container.folder, target, container.shim)
        command = sessions.start(place, argv, tty=tty)
        container.commands.add(command)
        command.when_ended = lambda: container.commands.discard(command)
        return command

    def _adopt_sandbox(self, pod_uid: str) -> None:
        if record := isolation.read_record(self._root / pod_uid):
            self._isolated[pod_uid] = record

    def _forget_sandbox(self, pod_uid: str) -> None:
        self._isolated.pop(pod_uid, None)

    def _container_of(
        self,
        folder: Folder,
        status: ContainerStatus,
        cgroups: Sequence[Path],
        shim: Identity | None = None,
        pidfd: int = -1,
    ) -> ProcessContainer:
        made = super()._container_of(folder, status, cgroups, shim, pidfd)
        made.is_isolated = folder.key.pod_uid in self._isolated
        return made

    def _resolve(self, folder: Folder, spec: ContainerSpec) -> Launch:
        home = self._root / spec.key.pod_uid / HOME
        view = self._view(spec.key.pod_uid)
        return process_launch.resolve(spec, folder, home, self._usable_bubblewrap, self._agent, view)

    def _view(self, pod_uid: str) -> View | None:
        """Raises StartError."""
        record = self._isolated.get(pod_uid)
        if record is isolation.UNREADABLE:
            raise StartError("the record of the pod's user is unreadable: delete the pod")
        return isolation.view(self._root / pod_uid, record, self._private) if record else None

    def _place(self, folder: Folder, pid: int, shim: Identity) -> sessions.ExecTarget:
        """Raises StartError."""
        try:
            env = sessions.environment(shim.pid)
        except OSError as error:
            raise StartError(f"the container's environment is not known: {error}") from error
        working_dir = folder.read_record().get("workingDir") or str(self._root / folder.key.pod_uid / HOME)
        cgroups = [str(each) for each in self._cgroups_of(folder)]
        return sessions.ExecTarget(folder=folder, pid=pid, env=env, working_dir=working_dir, cgroups=cgroups)

    def _usable_bubblewrap(self) -> str:
        """The program, or "" if this host lacks it or does not let it work. Tried once."""
        if self._bubblewrap is None:
            program = shutil.which("bwrap") or ""
            self._bubblewrap = program if program and mounts.usable(program) else ""
        return self._bubblewrap
