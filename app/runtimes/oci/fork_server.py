"""Fork server of the oci runtime: a small process of which holders of namespaces and shims of containers are copies.

A program of its own: `python fork_server.py PADDING`, for to copy it costs less than to start a shell. Standard input is a
socket that gives an order each time (a dictionary, by `marshal`), with descriptors: `report`, to which the copy writes its pid or
what went wrong, and `go`, on which a line comes once the agent has written down who the copy is; without, nothing runs. Copies go
on when the server ends, and it ends with its agent. PADDING is where copies write what `ps` shows of them.

A shim does what `process/shim.sh` does, and makes mounts in a namespace that its container alone has: they end with it.

What a copy does first costs most, for it touches memory that it shares so far. So this imports little, the modules `_signal` and
`_socket` in place of what Python has around them, and it opens files without Python's objects for them.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import ctypes
import gc
import marshal
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

MOST, MOST_FILES = 1 << 17, 6  # bytes and descriptors of an order
SHM = b"mode=1777,size=65536k"  # of a pod's shared memory: as much as elsewhere
FAILED = 1  # exit code of what could not be started
SLAVE, PRIVATE, NODEV = 0x84000, 0x44000, 4  # of mount(2): MS_SLAVE or MS_PRIVATE with MS_REC, MS_NODEV
MEMORY, DETACH = 0xE, 2  # of mount(2): MS_NOSUID, MS_NODEV, MS_NOEXEC; of umount2(2): MNT_DETACH
OPEN_TREE, MOVE_MOUNT = 428, 429  # system calls, on every architecture, of Linux 5.2
HERE, CLONE, ITSELF = -100, 1 | os.O_CLOEXEC, 4  # of these: AT_FDCWD, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH
NEW_MOUNTS, NEW_PIDS = 0x20000, 0x20000000  # of unshare(2)
UNIFIED = b"/sys/fs/cgroup/unified"
ENDING = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM)
ALTERED = (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ)  # by Python, when it starts
_SET_NAME, _ADD_SEALS, _SEALS = 15, 1033, 0xF  # of prctl(2), fcntl(2): all of them
_LIBC = ctypes.CDLL(None, use_errno=True)
fcntl, mount, pivot_root, prctl, setns, syscall, umount2, unshare = (
    getattr(_LIBC, name) for name in ("fcntl", "mount", "pivot_root", "prctl", "setns", "syscall", "umount2", "unshare")
)
mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)
Order = dict[str, Any]


def serve(orders: _socket.socket) -> None:
    programs = Programs()
    _signal.signal(_signal.SIGCHLD, _reap)
    gc.disable()
    gc.freeze()
    while True:
        message, more, _, _ = orders.recvmsg(MOST, _socket.CMSG_SPACE(4 * MOST_FILES), _socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        files = [*memoryview(more[0][2]).cast("i")]
        order = marshal.loads(message)  # noqa: S302 - from our agent
        program = programs.find(order["command"][0]) if "command" in order else -1
        try:
            if os.fork() == 0:
                _become(order, program, *files)
        except OSError as error:
            with suppress(OSError):
                os.write(files[0], f"{error.strerror}\n".encode())
        for each in files:
            os.close(each)


class Programs:
    """Programs in sealed memory. crun runs from there: it would copy itself there first, so that no container can change it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], int]] = {}

    def find(self, path: str) -> int:
        """A descriptor; -1 if it has to be run as it is."""
        try:
            found = os.stat(path)
            version = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
            known = self._known.get(path)
            if known is None or known[0] != version:
                if known and known[1] >= 0:
                    os.close(known[1])
                known = self._known[path] = version, _seal(path)
            return known[1]
        except OSError:
            return -1


def _seal(path: str) -> int:
    with open(path, "rb") as file:
        content = file.read()
    if not content.startswith(b"\x7fELF"):
        return -1
    with open(os.memfd_create("crun", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as memory:
        memory.write(content)
        memory.flush()
        _check(fcntl(memory.fileno(), _ADD_SEALS, _SEALS))
        return os.open(f"/proc/self/fd/{memory.fileno()}", os.O_RDONLY | os.O_CLOEXEC)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(order: Order, program: int, report: int, go: int, *streams: int) -> NoReturn:
    code = FAILED
    try:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):  # the first was the server's
            os.dup2(null, number)
        _show(order["title"])
        with suppress(OSError):
            code = watch(order, program, report, go, streams) if "command" in order else hold(order, report, go)
    finally:
        os._exit(code)


def _show(title: bytes) -> None:
    """As this process's command and name."""
    first, room = ARGUMENTS
    prctl(_SET_NAME, title.partition(b" ")[0])
    ctypes.memmove(first, title, min(len(title), room))


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, MOST)
    finally:
        os.close(file)


# Holders


def hold(order: Order, report: int, go: int) -> int:
    """Hold new namespaces of a pod. Of shared processes this is the first, and takes note of the end of orphans."""
    if unshare(order["flags"]):
        os.write(report, f"{os.strerror(ctypes.get_errno())}\n".encode())
        return FAILED
    if order["flags"] & NEW_PIDS and (child := os.fork()):
        os.close(report)
        os.close(go)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    pid = os.readlink("/proc/self")
    if order["flags"] & NEW_MOUNTS:
        try:
            _move_to_shared_memory(order["shm"])
        except OSError as error:
            os.write(report, f"{error.strerror}\n".encode())
            return FAILED
    _report(report, pid)
    if not os.read(go, 8):
        return FAILED
    os.close(go)
    while True:
        _signal.pause()


def _move_to_shared_memory(at: bytes) -> None:
    """Mount the pod's shared memory, and keep no other mount: what the machine unmounts must not go on here. Raises OSError."""
    _mount(None, b"/", None, PRIVATE)
    _mount(b"shm", at, b"tmpfs", MEMORY, SHM)
    os.chdir(at)
    _check(pivot_root(b".", b"."))
    _check(umount2(b".", DETACH))
    os.chdir("/")


# Shims


def watch(order: Order, program: int, report: int, go: int, streams: tuple[int, ...]) -> int:
    """Run a container, and write down how it ends. `streams`: its output, and its input with the other end."""
    for number in ENDING:  # only the container's end ends us
        _signal.signal(number, _signal.SIG_IGN)
    _report(report, os.readlink("/proc/self"))
    if not os.read(go, 8):
        return FAILED  # the agent died before it knew us: nothing may run
    os.close(go)
    folder = order["folder"]
    _write(f"{folder}/run", b"go\n", os.O_CREAT | os.O_TRUNC)  # without this file nothing has run
    keeper = _start_keeper(order, streams) if order["keeps"] else 0
    main = os.fork()
    if main == 0:
        _start(order, program, streams)
    for each in streams:
        os.close(each)
    code = os.waitstatus_to_exitcode(os.waitpid(main, 0)[1])
    with suppress(OSError):  # a container's end is the end of all in it
        os.killpg(main, _signal.SIGKILL)
    with suppress(OSError, ValueError):
        _kill_first(folder)
    if keeper:  # what a terminal still shows comes before the end. A keeper that is still starting finds the file
        _write(f"{folder}/over", b"", os.O_CREAT)
        os.kill(keeper, _signal.SIGTERM)
        os.waitpid(keeper, 0)
    why = " OOMKilled" if any(map(_was_killed_for_memory, order["cgroups"])) else ""
    _write(f"{folder}/run", f"end {code if code >= 0 else 128 - code}{why}\n".encode())
    return 0


def _start(order: Order, program: int, streams: tuple[int, ...]) -> NoReturn:
    try:
        for number in ENDING:
            _signal.signal(number, _signal.SIG_DFL)
        _write(f"{order['folder']}/run", b"%d\n%s" % (os.getpid(), _read("/proc/self/stat")))
        for each in order["cgroups"]:
            _join(each)
        os.setsid()
        _take(*streams)
        _make_mounts(order)
        os.chdir(order["folder"])
        with suppress(OSError):  # where memory may not be executed
            if program >= 0:
                os.execve(program, order["command"], order["env"])  # noqa: S606
        os.execve(order["command"][0], order["command"], order["env"])  # noqa: S606
    except OSError as error:
        with suppress(OSError):
            what = f"{error.strerror}: {error.filename}" if error.filename else f"{error.strerror}"
            _write(f"{order['folder']}/crun.log", f"{what}\n".encode(), os.O_CREAT)
    finally:
        os._exit(FAILED)


def _join(cgroup: str) -> None:
    """Version 1 moves one thread at once. To move a process takes a grace period of the kernel's RCU: some ten milliseconds."""
    file = f"{cgroup}/tasks"
    _write(file if os.path.exists(file) else f"{cgroup}/cgroup.procs", b"0")


def _take(out: int, err: int, given: int = 0, *_: int) -> None:
    for number, each in enumerate((given, out, err)):
        os.dup2(each, number)


def _make_mounts(order: Order) -> None:
    """The container's root, in a mount namespace of its own. Raises OSError."""
    memory = _take_shared_memory(order["shm"][0]) if order["shm"] else -1
    entered = [(os.open(path, os.O_RDONLY | os.O_CLOEXEC), kind) for path, kind in order["enter"]]
    for namespace, kind in entered:
        _check(setns(namespace, kind), b"namespaces")
    _check(unshare(NEW_MOUNTS))
    _mount(None, b"/", None, SLAVE)
    if order["shm"]:
        _place_shared_memory(memory, order["shm"][1].encode())
    os.chdir(order["layers"])  # all names of layers have to fit into a page
    _mount(b"overlay", f"{order['folder']}/rootfs".encode(), b"overlay", NODEV, order["overlay"].encode())
    # crun does not work beside both versions of cgroups, nor without any: the second is hidden, nothing stands for none.
    if umount2(UNIFIED, 0) and os.path.exists(UNIFIED + b"/cgroup.procs"):
        _mount(b"tmpfs", UNIFIED, b"tmpfs")
    if not os.listdir("/sys/fs/cgroup"):
        _mount(b"tmpfs", b"/sys/fs/cgroup", b"tmpfs")


def _take_shared_memory(namespace: str) -> int:
    """The root of a namespace of mounts, as a mount that is nowhere so far; -1 if this kernel has none such. Raises OSError."""
    root, own, theirs = (os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in ("/", "/proc/self/ns/mnt", namespace))
    _check(setns(theirs, NEW_MOUNTS), b"shared memory")
    memory = int(syscall(OPEN_TREE, HERE, b"/", CLONE))
    _check(setns(own, NEW_MOUNTS))
    os.fchdir(root)
    os.chroot(".")
    for each in (root, own, theirs):
        os.close(each)
    return memory


def _place_shared_memory(memory: int, at: bytes) -> None:
    """An old kernel's containers have some of their own. Raises OSError."""
    if memory < 0:
        _mount(b"shm", at, b"tmpfs", MEMORY, SHM)
        return
    _check(syscall(MOVE_MOUNT, memory, b"", HERE, at, ITSELF), at)
    os.close(memory)


def _mount(source: bytes | None, at: bytes, kind: bytes | None, flags: int = 0, options: bytes | None = None) -> None:
    _check(mount(source, at, kind, flags, options), at)


def _start_keeper(order: Order, streams: tuple[int, ...]) -> int:
    """It listens from now on for a terminal, which crun sends before it runs the container."""
    console = _listen(order["folder"], order["console"]) if order["keeps"] == "console" else None
    kept = console.fileno() if console else streams[-1]
    keeper = os.fork()
    if keeper == 0:
        try:
            os.dup2(streams[0], 1)
            os.dup2(kept, 6)
            program = os.path.join(order["programs"], "keeper.py")
            os.execv(sys.executable, [sys.executable, "-IS", program, order["folder"], order["keeps"]])  # noqa: S606
        finally:
            os._exit(FAILED)
    if console:
        console.close()
    return keeper


def _listen(folder: str, name: str) -> _socket.socket:
    """Raises OSError. By a name without a path, which may be longer than a socket's may be."""
    os.chdir(folder)
    console = _socket.socket(_socket.AF_UNIX)
    console.bind(name)
    console.listen(1)
    return console


def _kill_first(folder: str) -> None:
    """If its crun was killed, the container goes on. What has the container's root now is what the pid stands for."""
    pid = int(_read(f"{folder}/pid"))
    mark = os.fsencode(f"upperdir={folder}/upper,")
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        if any(mark in line and b" / / " in line for line in file):
            os.kill(pid, _signal.SIGKILL)


def _was_killed_for_memory(cgroup: str) -> bool:
    """Version 2 and 1 count alike whom the kernel killed."""
    for name in ("memory.events", "memory.oom_control"):
        with suppress(OSError):
            if any(
                line.startswith(b"oom_kill ") and line[9:] != b"0" for line in _read(f"{cgroup}/{name}").split(b"\n")
            ):
                return True
    return False


def _report(report: int, pid: str) -> None:
    """The pid, as the host has it."""
    os.write(report, f"{pid}\n".encode())
    os.close(report)


def _write(path: str, data: bytes, flags: int = 0) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
    os.write(file, data)
    os.close(file)


def _check(result: int, what: bytes = b"") -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(what) or None)


def _arguments() -> tuple[int, int]:
    """Where this process's command is in memory, for whoever looks at it, and how long one may be. It is empty now."""
    first, last = (int(each) for each in _read("/proc/self/stat").rpartition(b") ")[2].split()[45:47])
    ctypes.memset(first, 0, last - first)
    return first, last - first - 1


if __name__ == "__main__":
    ARGUMENTS = _arguments()
    _show(b"jobplane-forker")
    os.chdir("/")
    while os.open("/dev/null", os.O_RDWR) <= 2:  # what copies get is none of their standard streams
        pass
    for each in ALTERED:
        _signal.signal(each, _signal.SIG_DFL)
    serve(_socket.socket(fileno=0))
