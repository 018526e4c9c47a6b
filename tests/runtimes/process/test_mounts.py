"""Volumes for plain processes, where bubblewrap can be used, and what is said where it cannot."""

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.runtimes.base import Mount, RuntimeInfo, StartError
from app.runtimes.process import mounts as process_mounts
from app.runtimes.process.runtime import ProcessRuntime
from tests.needs import lacking
from tests.runtimes.conftest import FOREVER, Behaviour, Lab, exits, raw, script


def exists(path: str) -> bool:
    return Path(path).exists()


async def with_mounts(lab: Lab) -> RuntimeInfo:
    info = await lab.runtime.info()
    if not info.mounts:
        lacking("bubblewrap is not usable here")
    return info


async def test_without_bubblewrap_a_mount_is_a_start_error(tmp_path: Path) -> None:
    lab = Lab(lambda: ProcessRuntime(tmp_path / "state", bubblewrap=""))
    with pytest.raises(StartError, match=r"^this host cannot mount volumes for the process runtime"):
        await lab.start(exits(0), mounts=[Mount(source=tmp_path, target="/data")])

    assert not (await lab.runtime.info()).mounts
    await lab.close()


@pytest.mark.parametrize(("failures", "is_usable"), [(0, True), (2, True), (99, False)])
def test_bubblewrap_is_tried_again_for_a_mount_of_the_host_may_go_while_it_copies_them(
    tmp_path: Path, failures: int, is_usable: bool
) -> None:
    program, tries = tmp_path / "bwrap", tmp_path / "tries"
    program.write_text(f'#!/bin/sh\necho >>"{tries}"\n[ "$(wc -l <"{tries}")" -gt {failures} ]\n')
    program.chmod(0o755)

    assert process_mounts.usable(str(program)) == is_usable


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[Callable[[int], Lab]]:
    """A lab whose bubblewrap fails the first times at what the host may do to it, before it runs a command."""
    program, tries, labs = tmp_path / "bwrap", tmp_path / "tries", []

    def make(failures: int) -> Lab:
        real = shutil.which("bwrap") or lacking("bubblewrap is not installed")
        program.write_text(
            f'#!/bin/sh\necho >>"{tries}"\n[ "$(wc -l <"{tries}")" -gt {failures} ] && exec {real} "$@"\n'
            f"exec {real} --info-fd 4 --dev-bind / / --bind /no/such /no/such true\n"
        )
        program.chmod(0o755)
        labs.append(Lab(lambda: ProcessRuntime(tmp_path / "state", bubblewrap=str(program))))
        return labs[0]

    yield make
    await labs[0].close()


@pytest.mark.parametrize(("failures", "ran"), [(0, 1), (1, 1), (4, 1), (5, 0)])
@pytest.mark.parametrize("code", [0, 1, 7])
async def test_a_container_runs_once_when_bubblewrap_fails_at_a_mount_of_the_host(
    failing: Callable[[int], Lab], tmp_path: Path, failures: int, ran: int, code: int
) -> None:
    lab, source = failing(failures), tmp_path / "source"
    source.mkdir()
    mounts = [Mount(source=source, target="/data")]
    status = await lab.run(script(f"echo x >>/data/trace; exit {code}"), mounts=mounts)

    assert status.exit_code == (code if ran else 1)
    assert [path.read_text() for path in source.iterdir()] == ["x\n"] * ran


async def test_a_container_that_was_repeated_is_told_to_stop(failing: Callable[[int], Lab], tmp_path: Path) -> None:
    lab = failing(2)
    key = await lab.start(FOREVER, mounts=[Mount(source=tmp_path, target="/data")])
    await lab.logged(key, b"ready\n")
    assert [usage.key for usage in await lab.runtime.usage()] == [key]
    await lab.restart()

    assert (await lab.stop(key, 60)).exit_code == 143


@pytest.mark.parametrize(
    "target", ["/volume-a/deep", "/usr/share/volume-a", "/mnt", "/var/run/volume-a", "/tmp/volume-a"]
)
async def test_a_volume_is_at_its_target_and_nothing_is_made_on_the_host(
    process: Lab, tmp_path: Path, target: str
) -> None:
    await with_mounts(process)
    source = tmp_path / "source"
    source.mkdir()
    existed = exists(target)
    mounts = [Mount(source=source, target=target)]
    status = await process.run(script(f"echo hello >{target}/file; ls /usr/bin/env; exit 6"), mounts=mounts)

    assert raw(await process.log(status.key)) == b"/usr/bin/env\n"
    assert (status.exit_code, (source / "file").read_text()) == (6, "hello\n")
    assert exists(target) == existed
    assert not exists(f"{target}/file")


async def test_a_command_among_volumes_has_no_files_but_its_own(process: Lab, tmp_path: Path) -> None:
    await with_mounts(process)
    mounts = [Mount(source=tmp_path, target="/volume-a")]
    key = (await process.run(Behaviour(["ls", "/proc/self/fd"], {}), mounts=mounts)).key

    assert raw(await process.log(key)).split() == [b"0", b"1", b"2", b"3"]  # 3 is ls's own


async def test_a_read_only_volume_cannot_be_written(process: Lab, tmp_path: Path) -> None:
    await with_mounts(process)
    mounts = [Mount(source=tmp_path, target="/volume-a", read_only=True)]
    status = await process.run(script("echo hello >/volume-a/file"), mounts=mounts)

    assert status.exit_code
    assert not (tmp_path / "file").exists()


async def test_a_file_can_be_mounted_and_volumes_nest(process: Lab, tmp_path: Path) -> None:
    await with_mounts(process)
    (tmp_path / "inner").mkdir()
    (tmp_path / "file").write_text("content\n")
    mounts = [
        Mount(source=tmp_path / "file", target="/volume-a/sub/one"),
        Mount(source=tmp_path / "inner", target="/volume-a/sub"),
        Mount(source=tmp_path, target="/volume-a"),
    ]
    key = (await process.run(script("cat /volume-a/sub/one /volume-a/file"), mounts=mounts)).key

    assert raw(await process.log(key)) == b"content\ncontent\n"


async def test_a_command_and_working_folder_may_be_in_a_volume(process: Lab, tmp_path: Path) -> None:
    await with_mounts(process)
    (tmp_path / "program").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "program").chmod(0o755)
    mounts = [Mount(source=tmp_path, target="/volume-a")]
    status = await process.run(Behaviour(["./program"], {}), mounts=mounts, working_dir="/volume-a")

    assert (status.exit_code, raw(await process.log(status.key))) == (0, b"/volume-a\n")


@pytest.mark.parametrize(("trap", "code"), [("exit 9", 9), ("", 137)], ids=["TERM", "KILL"])
async def test_a_stop_reaches_the_command_among_its_volumes(process: Lab, tmp_path: Path, trap: str, code: int) -> None:
    await with_mounts(process)
    mounts = [Mount(source=tmp_path, target="/volume-a")]
    key = await process.start(script(f"trap '{trap}' TERM; echo ready; while :; do sleep 0.05; done"), mounts=mounts)
    await process.logged(key, b"ready")

    assert (await process.stop(key, 1000 if trap else 0.1)).exit_code == code


async def test_a_termination_message_path_of_the_container_s_own_is_a_file(process: Lab) -> None:
    await with_mounts(process)
    status = await process.run(script("echo gone >/volume-a/why"), termination_message_path="/volume-a/why")

    assert status.termination_message == "gone\n"
    assert not exists("/volume-a")


async def test_a_mount_where_the_kernel_s_files_are_is_a_start_error(process: Lab, tmp_path: Path) -> None:
    await with_mounts(process)
    with pytest.raises(StartError, match="belongs to the kernel"):
        await process.start(exits(0), mounts=[Mount(source=tmp_path, target="/dev/volume-a")])
