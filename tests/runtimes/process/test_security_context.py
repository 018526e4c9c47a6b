"""Who a process container runs as: what is told to setpriv, what is refused, and what containers of root's agent find."""

import os
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.base import Mount, Security, StartError
from app.runtimes.process.runtime import ProcessRuntime
from app.runtimes.process.security_context import CAPABILITIES, AgentRights, resolve
from tests.needs import lacking
from tests.runtimes.conftest import Lab, output_of, raw, script

ROOT = AgentRights(user=0, group=0, capabilities=frozenset(CAPABILITIES), setpriv="setpriv")
PLAIN = AgentRights(user=1000, group=1000, capabilities=frozenset(CAPABILITIES), setpriv="setpriv")
USER = 54321  # with no account here, so in group 0


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        pytest.param(Security(), "", id="nothing, if nothing is asked"),
        pytest.param(Security(user=USER), f"--reuid {USER} --regid 0 --clear-groups", id="a user without an account"),
        pytest.param(
            Security(user=1, group=2, groups=[3, 4]), "--reuid 1 --regid 2 --groups 3,4", id="a user and groups"
        ),
        pytest.param(Security(groups=[5]), "--reuid 0 --regid 0 --groups 5", id="a group for the pod's files"),
        pytest.param(Security(no_new_privileges=True), "--no-new-privs", id="that it stays as it is"),
        pytest.param(Security(drop=["ALL"]), "--inh-caps -all --bounding-set -all", id="no capabilities"),
        pytest.param(
            Security(drop=["ALL"], add=["CAP_CHOWN"]), "--inh-caps -all --bounding-set -all,+cap_0", id="one of them"
        ),
        pytest.param(Security(add=["NET_ADMIN"]), "", id="nothing, if it has what is added"),
        pytest.param(Security(privileged=True, drop=["ALL"]), "", id="nothing, if it is privileged"),
    ],
)
def test_setpriv_is_told(security: Security, expected: str) -> None:
    found = resolve(security, ROOT).arguments

    assert " ".join(found) == (f"setpriv {expected} --" if expected else "")


@pytest.mark.parametrize(
    ("security", "agent", "why"),
    [
        pytest.param(
            Security(user=0),
            PLAIN,
            "the container asks for user 0, but the agent runs as user 1000, and only root can run it as another",
            id="it asks for another user",
        ),
        pytest.param(
            Security(group=5),
            PLAIN,
            "the container asks for group 5, but the agent runs as group 1000, and only root can run it as another",
            id="it asks for another group",
        ),
        pytest.param(
            Security(user=5),
            AgentRights(user=0, group=0, capabilities=ROOT.capabilities, setpriv=""),
            "the container asks for user 5, but the agent runs as user 0 and lacks the program setpriv (util-linux)",
            id="there is no setpriv",
        ),
        pytest.param(
            Security(add=["SYS_TIME"]),
            AgentRights(user=0, group=0, capabilities=ROOT.capabilities - {"SYS_TIME"}, setpriv="setpriv"),
            'the container asks for capability "SYS_TIME", which the agent does not have',
            id="the agent lacks a capability",
        ),
        pytest.param(
            Security(seccomp="/profiles/x.json"),
            ROOT,
            'the process runtime applies no seccomp profiles, so not "/profiles/x.json" either',
            id="it has a seccomp profile of its own",
        ),
    ],
)
def test_a_container_is_not_started_if(security: Security, agent: AgentRights, why: str) -> None:
    with pytest.raises(StartError) as refused:
        resolve(security, agent)

    assert str(refused.value) == why


@pytest.mark.parametrize("seccomp", ["", "Unconfined", "RuntimeDefault"])
def test_the_default_profile_of_this_runtime_is_none(seccomp: str) -> None:
    assert resolve(Security(seccomp=seccomp), ROOT).arguments == ()


def test_whoever_is_not_root_takes_away_what_it_can() -> None:
    asked = Security(user=1000, group=1000, groups=[7], drop=["ALL"])

    assert resolve(asked, PLAIN).arguments == ("setpriv", "--no-new-privs", "--")
    assert resolve(Security(user=1000), PLAIN).arguments == ()


# What containers find


@pytest.fixture
async def rooted(process: Lab) -> Lab:
    if not (await process.runtime.info()).security:
        lacking("this needs root, setpriv and bubblewrap")
    return process


async def printed(lab: Lab, text: str, **more: Any) -> str:
    status = await lab.run(script(f"exec 2>&1; {text}"), **more)
    found = raw(await lab.log(status.key)).decode()
    assert status.exit_code == 0, found
    return found


async def test_a_user_has_a_folder_of_its_own_and_its_streams(rooted: Lab) -> None:
    text = "cd && pwd && touch it && stat -c %u . it && echo said >>/dev/stdout; echo why >$JOBPLANE_TERMINATION_LOG"
    status = await rooted.run(script(f"exec 2>&1; {text}"), security=Security(user=USER))
    found = raw(await rooted.log(status.key)).decode().splitlines()

    assert found[1:] == [str(USER), str(USER), "said"]
    assert status.termination_message == "why\n"


async def test_a_user_sees_nothing_of_the_agent_s(rooted: Lab, root: Path) -> None:
    text = f"ls {root} {root}/pod-1 {root}/pod-1/main/0 && echo seen; cat {root}/pod-1/main/0/spec.json && echo read; :"

    assert not {"seen", "read"} & set((await printed(rooted, text, security=Security(user=USER))).split())


async def test_a_user_may_write_to_its_terminal(rooted: Lab) -> None:
    assert (await printed(rooted, "echo hello >$(tty)", security=Security(user=USER), tty=True)).strip() == "hello"


async def test_a_command_in_a_container_has_its_user_and_folder(rooted: Lab) -> None:
    key = await rooted.start(script("echo ready; exec sleep 1000"), security=Security(user=USER, groups=[77]))
    await rooted.logged(key, b"ready")
    session = await rooted.runtime.execute(key, ["sh", "-c", "id -u; id -G; stat -c %u ."])
    found = (await output_of(session)).get("stdout", b"").split()
    await session.close()

    assert found == [b"%d" % USER, b"0", b"77", b"%d" % USER]


async def test_a_read_only_root_leaves_its_volumes_its_message_and_devices(rooted: Lab, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mounts = [Mount(source=tmp_path / "data", target="/volume-a/data")]
    text = (
        "echo 1 >/volume-a/data/file; echo gone >$JOBPLANE_TERMINATION_LOG; echo 1 >/dev/null;"
        "for each in $HOME /volume-a /etc /tmp; do touch $each/new 2>/dev/null && echo $each; done; true"
    )
    status = await rooted.run(script(text), security=Security(read_only_root=True), mounts=mounts)

    assert raw(await rooted.log(status.key)) == b""
    assert (status.exit_code, status.termination_message) == (0, "gone\n")
    assert (tmp_path / "data/file").read_text() == "1\n"


async def test_a_user_and_a_read_only_root_go_together(rooted: Lab) -> None:
    security = Security(user=USER, read_only_root=True, drop=["ALL"], no_new_privileges=True)
    text = "echo gone >$JOBPLANE_TERMINATION_LOG; touch $HOME/new || id -u"
    status = await rooted.run(script(text), security=security)

    assert raw(await rooted.log(status.key)) == b"%d\n" % USER
    assert status.termination_message == "gone\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs others")
async def test_without_bubblewrap_a_user_has_to_reach_the_agent_s_folders(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    lab = Lab(lambda: ProcessRuntime(hidden / "state", bubblewrap=""))
    with pytest.raises(StartError, match=f"^user {USER} cannot reach the agent's folders"):
        await lab.start(script("true"), security=Security(user=USER))

    assert not (await lab.runtime.info()).security
    await lab.close()
