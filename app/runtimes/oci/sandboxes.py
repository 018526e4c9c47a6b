"""Pods' sandboxes of the oci runtime: a process that holds the namespaces which a pod's containers share, and files for them.

On disk, in the pod's folder: `.sandbox`, what was asked for and who holds the namespaces; `.hosts`, `.hostname`, `.resolv.conf`;
`.shm`, an empty folder, where containers find the pod's shared memory. A sandbox stands while its holder lives, and so does
that memory, which is mounted in a namespace of the holder's alone.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from socket import gethostname

import msgspec

from app.open_files import limit_restored
from app.runtimes.base import CreateError, Dns, SandboxSpec, Unsupported
from app.runtimes.linux import process_table
from app.runtimes.linux.process_table import Identity
from app.runtimes.oci import forks
from app.runtimes.oci.forks import ForkServer
from app.runtimes.oci.host_ports import HostPorts
from app.runtimes.oci.network import PodLinks
from app.runtimes.oci.user_namespace import UserNamespace
from app.runtimes.process.launch import PATH, RESET

HOLDER = Path(__file__).with_name("holder.sh")
RECORD, HOSTS, HOSTNAME, RESOLV_CONF, SHM = ".sandbox", ".hosts", ".hostname", ".resolv.conf", ".shm"
NODE_SHM = Path("/dev/shm")  # noqa: S108 - for pods that share the node's IPC
POD_FOLDER = "JOBPLANE_POD_FOLDER"  # in a holder's environment, for who looks for what belongs to a pod
READABLE = 0o644
_NEW_MOUNTS, _NEW_UTS, _NEW_IPC = 0x20000, 0x4000000, 0x8000000  # of unshare(2)
_NEW_PIDS, _NEW_NETWORK = 0x20000000, 0x40000000
_MAPPED = {"user": 0x10000000, "mnt": 0x20000}


class SandboxRecord(msgspec.Struct, frozen=True):
    """A pod's sandbox, as it is on disk."""

    @property
    def network(self) -> str:
        """The path of its network namespace; empty: the node's."""
        return f"/proc/{self.holder.pid}/ns/net" if self.ip else ""

    spec: SandboxSpec
    holder: Identity
    ip: str = ""  # of its own network; empty: it shares the node's


class Sandboxes:
    """Those below `root`. Made inside a running event loop."""

    def __init__(self, root: Path, namespace: UserNamespace, server: ForkServer) -> None:
        self._root, self._namespace, self._forks = root, namespace, server
        self._network, self._host_ports = PodLinks(root), HostPorts(root)
        self._loop = asyncio.get_running_loop()
        self._boot = process_table.boot_id()
        self._records: dict[str, SandboxRecord] = {}
        self._pidfds: set[int] = set()

    def adopt(self, pod_uid: str) -> None:
        """Of an earlier agent. Without a record there is no sandbox."""
        with suppress(OSError, ValueError):
            content = (self._root / pod_uid / RECORD).read_bytes()
            self._records[pod_uid] = msgspec.json.decode(content, type=SandboxRecord)
            self._network.take(self._records[pod_uid].ip)

    def forget(self, pod_uid: str) -> None:
        if record := self._records.pop(pod_uid, None):
            self._network.release(record.ip)

    @property
    def has_network(self) -> bool:
        """Whether pods get a network of their own."""
        return self._network.cidr is not None

    async def use_pod_cidr(self, cidr: str) -> None:
        """Give pods a network of their own from now on. Raises OSError, Unsupported."""
        if self._namespace.unshare:
            raise Unsupported("the agent is an ordinary user. Run it as root for a network of each pod's own")
        await self._network.use(cidr)
        await self._publish()

    def find(self, pod_uid: str) -> SandboxRecord | None:
        """One that stands."""
        record = self._records.get(pod_uid)
        return record if record and process_table.lives(record.holder, self._boot) else None

    async def make(self, spec: SandboxSpec) -> None:
        """Raises CreateError."""
        try:
            pod = self._root / spec.pod_uid
            pod.mkdir(mode=0o700, exist_ok=True)
            if not spec.host_ipc:
                (pod / SHM).mkdir(mode=0o755, exist_ok=True)
            _write(pod / HOSTS, _hosts(spec))
            _write(pod / HOSTNAME, f"{spec.hostname or gethostname()}\n")
            _write(pod / RESOLV_CONF, _resolv_conf(spec.dns))
            await self._hold(spec, pod)
            if spec.ports:
                await self._publish()
        except (OSError, Unsupported) as error:
            raise CreateError(f"Failed to create pod sandbox: {error}") from error

    async def end(self, pod_uid: str) -> None:
        """Kill its holder. Fine if there is none."""
        record = self._records.get(pod_uid)
        if record and process_table.lives(record.holder, self._boot):
            process_table.kill(record.holder.pid, signal.SIGKILL)
            if record.spec.ports and record.ip:
                with suppress(OSError):  # the next change writes the rules
                    await self._publish(ending=pod_uid)

    async def _publish(self, ending: str = "") -> None:
        standing = [record for uid in self._records if uid != ending and (record := self.find(uid)) and record.ip]
        if self._network.cidr is not None:
            await self._host_ports.publish({each.ip: each.spec.ports for each in standing}, self._network.cidr)

    def files(self, pod_uid: str) -> Mapping[str, Path]:
        """By where the pod's containers see them."""
        pod = self._root / pod_uid
        found = {"/etc/hosts": pod / HOSTS, "/etc/hostname": pod / HOSTNAME, "/etc/resolv.conf": pod / RESOLV_CONF}
        return {inside: file for inside, file in found.items() if file.exists()}  # earlier agents made no `.hostname`

    def close(self) -> None:
        for pidfd in self._pidfds:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        self._pidfds = set()
        self._network.close()

    def namespaces(self, pod_uid: str) -> list[tuple[str, int]]:
        """What a program enters first that mounts for the pod's containers: files of namespaces, and their kinds."""
        record = self.find(pod_uid)
        if not self._namespace.unshare or record is None:
            return []
        return [(f"/proc/{record.holder.pid}/ns/{name}", kind) for name, kind in _MAPPED.items()]

    def find_shm(self, pod_uid: str) -> Path | None:
        """Where a container finds the shared memory of its pod. An earlier agent's pods have none."""
        record = self._records.get(pod_uid)
        if record and record.spec.host_ipc:
            return NODE_SHM if NODE_SHM.is_dir() else None
        shm = self._root / pod_uid / SHM
        return shm if shm.exists() else None

    def shm_to_take(self, pod_uid: str) -> tuple[str, str] | None:
        """A namespace of mounts whose root is the pod's shared memory, and where that belongs. None: it is in its place."""
        record, shm = self._records.get(pod_uid), self.find_shm(pod_uid)
        if record is None or shm in (None, NODE_SHM) or self._namespace.unshare:
            return None
        return f"/proc/{record.holder.pid}/ns/mnt", str(shm)

    async def _hold(self, spec: SandboxSpec, pod: Path) -> None:
        """Start the holder, which goes on only once it is on record. Raises CreateError, OSError."""
        theirs, writing = os.pipe()
        try:
            try:
                pid = await (self._spawn if self._namespace.unshare else self._fork)(spec, pod, theirs)
            finally:
                os.close(theirs)
            process = process_table.look(pid)
            if process is None:
                raise CreateError("Failed to create pod sandbox: this machine refuses namespaces to the agent's user")
            ip = await self._network.attach(process.pid, has_ports=bool(spec.ports)) if self._has_network(spec) else ""
            record = SandboxRecord(spec, Identity(process.pid, process.start, self._boot), ip)
            new = pod / f"{RECORD}.new"
            new.write_bytes(msgspec.json.encode(record))
            new.replace(pod / RECORD)
            os.write(writing, b"go\n")
            self.forget(spec.pod_uid)
            self._records[spec.pod_uid] = record
        finally:
            os.close(writing)

    async def _fork(self, spec: SandboxSpec, pod: Path, go: int) -> int:
        """Pid of a holder."""
        flags = _NEW_UTS | _NEW_IPC | (_NEW_PIDS if _shares_processes(spec) else 0)
        flags |= _NEW_NETWORK if self._has_network(spec) else 0
        flags |= 0 if spec.host_ipc else _NEW_MOUNTS
        return await self._forks.fork(forks.holder(pod, flags, pod / SHM), [go])

    async def _spawn(self, spec: SandboxSpec, pod: Path, go: int) -> int:
        """Pid of a holder in a user namespace, which takes programs that have the right to map users; 0 if it failed."""
        reading, told = os.pipe()
        try:
            try:
                self._reap(self._unshare(spec, pod, go, told))
            finally:
                os.close(told)
            text = await asyncio.to_thread(os.read, reading, 64)
            return int(text) if text.strip().isdigit() else 0
        finally:
            os.close(reading)

    def _unshare(self, spec: SandboxSpec, pod: Path, stdin: int, stdout: int) -> int:
        shares = _shares_processes(spec)
        flags = [*self._namespace.unshare, "--uts", "--ipc", *(["--pid", "--fork"] if shares else [])]
        shm = "" if spec.host_ipc else str(pod / SHM)
        command = ["unshare", *flags, "--", "/bin/sh", str(HOLDER), shm, *(["reap"] if shares else [])]
        actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)]
        env = {"PATH": os.environ.get("PATH", PATH), POD_FOLDER: str(pod)}
        with limit_restored():
            return os.posix_spawnp(
                command[0], command, env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=RESET
            )

    def _has_network(self, spec: SandboxSpec) -> bool:
        return self.has_network and not spec.host_network

    def _reap(self, pid: int) -> None:
        """Take note of its end, whenever that is."""
        pidfd = os.pidfd_open(pid)
        self._pidfds.add(pidfd)

        def ended() -> None:
            self._loop.remove_reader(pidfd)
            self._pidfds.discard(pidfd)
            with suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
            os.close(pidfd)

        self._loop.add_reader(pidfd, ended)


def _shares_processes(spec: SandboxSpec) -> bool:
    return spec.share_pid and not spec.host_pid


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(READABLE)  # by whoever a container runs as


def _hosts(spec: SandboxSpec) -> str:
    """The node's, as its network is, and the pod's own name."""
    text = _read_text("/etc/hosts") or "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
    if spec.host_network or not spec.hostname:
        return text
    return f"{text.rstrip()}\n127.0.0.1\t{spec.hostname}\n"


def _resolv_conf(dns: Dns | None) -> str:
    if dns is None:
        return _read_text("/etc/resolv.conf")
    lines = [f"search {' '.join(dns.searches)}"] if dns.searches else []
    lines += [f"nameserver {each}" for each in dns.servers]
    lines += [f"options {' '.join(dns.options)}"] if dns.options else []
    return "".join(f"{line}\n" for line in lines)


def _read_text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""
