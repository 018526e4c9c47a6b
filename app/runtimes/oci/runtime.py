"""Runtime `oci`: containers of images, without a daemon, as root and as an ordinary user.

skopeo pulls an image, each of its layers is unpacked once, overlayfs stacks them, and crun runs the container under the same shim
as the process runtime's: containers, exit codes and logs survive the agent, which is all that there is besides.

Pods share the node's network, unless `use_pod_cidr` has given them a network of their own, which needs root.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    ContainerUsage,
    CreateError,
    Image,
    Login,
    Pipe,
    RuntimeInfo,
    Sandbox,
    SandboxSpec,
    Session,
    StartError,
)
from app.runtimes.engine.errors import NOT_STARTED
from app.runtimes.linux import cgroups as cgroup
from app.runtimes.linux import network_namespaces
from app.runtimes.linux.cgroups import Cgroups
from app.runtimes.linux.process_table import Identity
from app.runtimes.oci import accounts as oci_accounts
from app.runtimes.oci import cdi, commands, forks, machine, seccomp, user_namespace
from app.runtimes.oci import config as oci_config
from app.runtimes.oci import container as oci_container
from app.runtimes.oci.accounts import Account
from app.runtimes.oci.config import Surroundings
from app.runtimes.oci.container import OciContainer
from app.runtimes.oci.forks import ForkServer
from app.runtimes.oci.image_store import ImageStore, StoredImage
from app.runtimes.oci.sandboxes import Sandboxes, SandboxRecord
from app.runtimes.oci.writable_layers import WritableLayerSizes
from app.runtimes.process import launch as process_launch
from app.runtimes.process.container import ProcessContainer
from app.runtimes.process.files import Folder, check_name
from app.runtimes.process.launch import Launch
from app.runtimes.process.logs import Log
from app.runtimes.process.shim_runtime import ShimRuntime

VERSION = "1.0"
CRUN_SCRIPT = Path(__file__).with_name("crun.sh")
PROFILE = "jobplane.dev/seccomp-profile"  # annotation with its digest
STARTS_WITHIN = 60.0  # seconds for crun
AT_BEST, NOT_YET, AT_MOST = 0.01, 0.004, 0.02  # seconds until the first look, and between others, which are
SLOWER = 1.4  # times as many each time
WRITABLE = 0o666  # by any user of the container, in a folder that is the agent's alone


class OciRuntime(ShimRuntime):
    """See `base.Runtime`. Made inside a running event loop. One at a time may use `root`: RuntimeError otherwise.

    images:  folder of images, which no other agent uses.
    cgroups: where to make cgroups for each container, with its limits.
    refuses_limits: as in `RuntimeInfo`.
    """

    def __init__(self, root: Path, images: Path, *, cgroups: Cgroups | None = None, refuses_limits: str = "") -> None:
        machine.check_programs()
        self._program = process_launch.program("crun")
        for place in (root, images):
            machine.check_place(place.resolve())
        self._namespace = user_namespace.find()
        super().__init__(root, cgroups, self._namespace.inside)
        images.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._images = ImageStore(images, self._namespace)
        self._forks = ForkServer()
        self._sandboxes = Sandboxes(self._root, self._namespace, self._forks)
        self._filters = seccomp.Filters()
        self._compiling: dict[ContainerKey, str] = {}  # digests of profiles that crun compiles for containers
        self._written = WritableLayerSizes()
        self._refuses_limits = refuses_limits
        self._bound = machine.bounding_set(Path("/proc/self/status").read_text(encoding="ascii"))
        self._begin()

    async def info(self) -> RuntimeInfo:
        return RuntimeInfo(
            name="oci",
            version=VERSION,
            survives_agent=True,
            images=True,
            pod_network=self._sandboxes.has_network,
            limits=self._cgroups is not None and self._cgroups.limits,
            security=self._namespace.has_users,
            seccomp=seccomp.default_path() is not None,
            terminals=True,
            rootless=bool(self._namespace.unshare),
            refuses_limits=self._refuses_limits,
            store=str(self._images.root),
        )

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        check_name(spec.pod_uid)
        if self._sandboxes.find(spec.pod_uid) is None:
            await self._sandboxes.make(spec)
        self._pods.setdefault(spec.pod_uid, {})
        record = self._sandboxes.find(spec.pod_uid)
        return Sandbox(spec.pod_uid, record.ip if record else "")

    async def sandboxes(self) -> Sequence[Sandbox]:
        return [Sandbox(uid, found.ip) for uid in self._pods if (found := self._sandboxes.find(uid))]

    async def use_pod_cidr(self, cidr: str) -> bool:
        """Give pods addresses of it from now on. Raises OSError, Unsupported."""
        await self._sandboxes.use_pod_cidr(cidr)
        return True

    async def dial(self, pod_uid: str, port: int) -> Pipe:
        record = self._sandboxes.find(pod_uid)
        if record is None:
            raise ConnectionError(f'pod "{pod_uid}" has no sandbox')
        return await network_namespaces.dial(record.network, port)

    # Images

    async def images(self) -> Sequence[Image]:
        return self._images.images()

    async def pull(self, image: str, login: Login | None = None) -> str:
        return await self._images.pull(image, login)

    async def remove_image(self, image_id: str) -> None:
        used = {
            container.folder.read_record().get("imageId") for pod in self._pods.values() for container in pod.values()
        }
        if image_id not in used:
            await self._images.remove(image_id)

    # Containers

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool = False) -> Session:
        container = self._running(key)
        if not oci_container.init_pid(container.folder):
            raise StartError("the container is not running")
        crun = [
            *self._entered(key.pod_uid),
            "/bin/sh",
            str(CRUN_SCRIPT),
            str(container.folder.path),
            *self._crun(container.folder),
        ]
        cgroups = [str(each) for each in container.cgroups]
        command = commands.start(container.folder, crun, argv, cgroups, tty=tty)
        container.commands.add(command)
        command.when_ended = lambda: container.commands.discard(command)
        try:
            await command.take_terminal()
        except BaseException:
            await command.close()
            raise
        return command

    async def usage(self) -> Sequence[ContainerUsage]:
        found = await super().usage()
        uppers = {each.key: Folder(self._root, each.key).path / "upper" for each in found}
        written = await asyncio.to_thread(self._written.measure, uppers)
        return [each._replace(disk=each.disk + written[each.key]) for each in found]

    async def close(self) -> None:
        await super().close()
        await self._forks.close()
        self._sandboxes.close()
        self._images.close()

    async def _prepare(self, spec: ContainerSpec) -> None:
        if self._images.find(spec.image) is None:
            raise CreateError(f'image "{spec.image}" is not there: pull it')
        if self._sandboxes.find(spec.key.pod_uid) is None:
            raise StartError(f'pod "{spec.key.pod_uid}" has no sandbox')

    async def _await_start(self, container: ProcessContainer) -> None:
        folder, pause, latest = container.folder, AT_BEST, self._loop.time() + STARTS_WITHIN
        profile = self._compiling.pop(folder.key, "")
        while not await container.ends(pause) and self._loop.time() < latest:
            if oci_container.init_pid(folder):
                if profile:
                    self._filters.keep(profile, folder.path / "crun" / oci_container.ID / seccomp.FILTER)
                return
            pause = NOT_YET if pause == AT_BEST else min(pause * SLOWER, AT_MOST)
        if container.ended.is_set() and container.status.reason == "StartError":
            raise StartError(container.status.message, container.status.exit_code or NOT_STARTED)

    def _resolve(self, folder: Folder, spec: ContainerSpec) -> Launch:
        image, sandbox = self._images.find(spec.image), self._sandboxes.find(spec.key.pod_uid)
        if image is None or sandbox is None:
            raise StartError("the image or the sandbox has just gone")
        cgroups = self._cgroups.make(spec.key, spec.limits) if self._cgroups else []
        found = self._configure(folder, spec, image, sandbox, cgroups)
        path = str(folder.path)
        for name in ("rootfs", "upper", "work", "crun"):
            os.mkdir(f"{path}/{name}", 0o755)
        folder.write("config.json", msgspec.json.encode(found))
        account = found["process"]["user"]
        return Launch(
            command=self._run(folder, tty=spec.tty),
            env={"PATH": os.environ.get("PATH", process_launch.PATH)},
            working_dir="/",
            keeps="console" if spec.tty else process_launch.keeps(spec),
            cgroups=cgroups,
            # crun gives them to the container's user, whose files an agent that is not root cannot read otherwise.
            owner=None if self._namespace.unshare else (account["uid"], account["gid"]),
            mode=WRITABLE if self._namespace.unshare else 0,
            record={"imageId": image.id, PROFILE: found.get("annotations", {}).get(PROFILE, "")},
        )

    def _configure(
        self, folder: Folder, spec: ContainerSpec, image: StoredImage, sandbox: SandboxRecord, cgroups: Sequence[Path]
    ) -> dict[str, Any]:
        """Raises StartError, OSError."""
        files = {**self._sandboxes.files(spec.key.pod_uid)}
        if spec.termination_message_path:
            folder.write("message", b"")
            (folder.path / "message").chmod(WRITABLE)
            files[spec.termination_message_path] = folder.path / "message"
        around = Surroundings(
            pod=sandbox.spec,
            files=files,
            holder=sandbox.holder.pid,
            cgroups=self._cgroups.names(cgroups) if self._cgroups else {},
            bound=self._bound,
            shm=self._sandboxes.find_shm(spec.key.pod_uid),
            has_network=bool(sandbox.ip),
            is_mapped=bool(self._namespace.unshare),
            has_groups=self._namespace.has_users,
        )
        found = oci_config.container(spec, image.config, self._account(spec, image), around)
        if spec.devices:
            cdi.apply(found, cdi.edits(cdi.read(), spec.devices))
        profile = _profile(spec)
        if profile is not None:
            is_default = spec.security.seccomp in ("", seccomp.RUNTIME_DEFAULT)
            capabilities = found["process"]["capabilities"]["bounding"]
            found["linux"]["seccomp"], digest = seccomp.rules(profile, capabilities, is_default=is_default)
            compiled = self._filters.find(digest)
            found["annotations"] = {PROFILE: digest, **({seccomp.ANNOTATION: compiled} if compiled else {})}
            if compiled:
                found["linux"]["seccomp"] = (
                    seccomp.NOTHING
                )  # the filter counts; to read all rules would take a millisecond
        return found

    def _account(self, spec: ContainerSpec, image: StoredImage) -> Account:
        """Raises StartError."""
        accounts = oci_accounts.read(self._images.layers, image.layers)
        wanted = spec.security
        try:
            account = oci_accounts.find(accounts, image.config.user if wanted.user is None else str(wanted.user))
        except ValueError as error:
            raise StartError(str(error)) from error
        group = account.group if wanted.group is None else wanted.group
        groups = tuple(dict.fromkeys((*account.groups, *wanted.groups)))
        if not self._namespace.has_users and (account.user, group) != (0, 0):
            raise StartError(
                f"user {account.user} is not available: without a range in /etc/subuid, containers of this node run as root only"
            )
        return Account(account.user, group, groups if self._namespace.has_users else ())

    async def _spawn(self, folder: Folder, spec: ContainerSpec, launch: Launch) -> tuple[Identity, int]:
        """By the fork server, in place of a shell and what it would start."""
        pod, image = self._pods.get(spec.key.pod_uid), self._images.find(spec.image)
        if image is None:
            raise StartError("the image has just gone")
        namespaces = self._sandboxes.namespaces(spec.key.pod_uid)
        shm = self._sandboxes.shm_to_take(spec.key.pod_uid)
        order = forks.shim(folder, self._images.layers, image.layers, launch, namespaces, shm)
        reading, writing = os.pipe()
        try:
            try:
                with process_launch.open_streams(folder, launch) as streams:
                    pid = await self._forks.fork(order, [reading, *streams])
            finally:
                os.close(reading)
            if pod is None or self._pods.get(spec.key.pod_uid) is not pod:
                cgroup.remove(launch.cgroups)
                raise StartError("the pod was removed meanwhile")
            shim, pidfd = self._record(folder, spec, launch, pid)
            if (profile := str(launch.record[PROFILE])) and not self._filters.find(profile):
                self._compiling[spec.key] = profile
            os.write(writing, b"go\n")
        finally:
            os.close(writing)  # without a line it ends
        return shim, pidfd

    def _run(self, folder: Folder, *, tty: bool) -> list[str]:
        crun = [*self._crun(folder), f"--log=file:{folder.path}/crun.log"]
        console = [f"--console-socket={forks.CONSOLE}"] if tty else []
        return [*crun, "run", f"--bundle={folder.path}", f"--pid-file={folder.path}/pid", *console, oci_container.ID]

    def _entered(self, pod_uid: str) -> list[str]:
        """Words before a command that runs in the pod's user namespace, if there is one, and in mounts of its own."""
        sandbox = self._sandboxes.find(pod_uid)
        own = ["unshare", "--mount", "--propagation=slave", "--"]
        if not self._namespace.unshare or sandbox is None:
            return own
        return ["nsenter", f"--target={sandbox.holder.pid}", "--user", "--mount", "--preserve-credentials", "--", *own]

    def _crun(self, folder: Folder) -> list[str]:
        return [self._program, f"--root={folder.path}/crun", "--cgroup-manager=disabled", "--log-format=json"]

    # Hooks of the base class

    def _adopt_sandbox(self, pod_uid: str) -> None:
        self._sandboxes.adopt(pod_uid)

    def _forget_sandbox(self, pod_uid: str) -> None:
        self._sandboxes.forget(pod_uid)

    async def _end_sandbox(self, pod_uid: str) -> None:
        await self._sandboxes.end(pod_uid)

    def _container_of(
        self,
        folder: Folder,
        status: ContainerStatus,
        cgroups: Sequence[Path],
        shim: Identity | None = None,
        pidfd: int = -1,
    ) -> ProcessContainer:
        return OciContainer(folder=folder, log=Log(folder), status=status, shim=shim, pidfd=pidfd, cgroups=cgroups)

    def _read_end(self, folder: Folder) -> ContainerStatus | None:
        return oci_container.read_end(folder)

    def _end_leftover_commands(self, folder: Folder) -> None:
        commands.end_leftovers(folder)

    def _kill_lost(self, folder: Folder) -> None:
        oci_container.kill_first(folder)
        super()._kill_lost(folder)


def _profile(spec: ContainerSpec) -> Path | None:
    """The file of its seccomp profile; None for none. Raises StartError."""
    name = spec.security.seccomp
    if name == seccomp.UNCONFINED or (spec.security.privileged and not name):
        return None
    if name not in ("", seccomp.RUNTIME_DEFAULT):
        return Path(name)
    found = seccomp.default_path()
    if found is None and name:
        raise StartError(f"this node has no default seccomp profile: {seccomp.DEFAULTS[0]} is missing")
    return found
