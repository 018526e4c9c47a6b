"""OCI configuration, seccomp profiles and accounts, by tables."""

import pytest

from app.runtimes.base import ContainerKey, ContainerSpec, Security, StartError
from app.runtimes.oci import accounts, config, machine, seccomp
from app.runtimes.oci.accounts import Account, Accounts
from app.runtimes.oci.image_store import ImageConfig

ACCOUNTS = Accounts("root:x:0:0::/:\nworker:x:1000:100::/:\nbroken\n", "users:x:100:\nextra:x:7:other,worker\n")


def a_spec(command: list[str], args: list[str]) -> ContainerSpec:
    return ContainerSpec(key=ContainerKey("pod", "main", 0), image="some/image", command=command, env={}, args=args)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ([], [], ["entry", "cmd"]),
        ([], ["arg"], ["entry", "arg"]),
        (["own"], [], ["own"]),
        (["own"], ["arg"], ["own", "arg"]),
    ],
)
def test_command_and_arguments_replace_the_image_s(command: list[str], args: list[str], expected: list[str]) -> None:
    image = ImageConfig(entrypoint=("entry",), cmd=("cmd",))

    assert config.arguments(a_spec(command, args), image) == expected


def test_without_any_command_nothing_starts() -> None:
    with pytest.raises(StartError, match='no command specified, and image "some/image" has none'):
        config.arguments(a_spec([], []), ImageConfig())


BOUND = machine.bounding_set("CapBnd:\t000001ffffffffff\n")


@pytest.mark.parametrize(
    ("security", "has", "lacks"),
    [
        (Security(), "CAP_CHOWN", "CAP_NET_RAW"),
        (Security(add=["NET_RAW"]), "CAP_NET_RAW", "CAP_SYS_ADMIN"),
        (Security(drop=["CHOWN"]), "CAP_SETUID", "CAP_CHOWN"),
        (Security(drop=["ALL"], add=["CHOWN"]), "CAP_CHOWN", "CAP_SETUID"),
        (Security(add=["ALL"]), "CAP_SYS_ADMIN", "CAP_MKNOD"),
        (Security(privileged=True), "CAP_MKNOD", "CAP_NONE"),
    ],
)
def test_capabilities(security: Security, has: str, lacks: str) -> None:
    found = config.allowed(security, BOUND, has_network=False)

    assert has in found
    assert lacks not in found


def test_the_bounding_set_is_read() -> None:
    assert len(BOUND) == 41
    assert list(machine.bounding_set("Name:\tx\nCapBnd:\t0000000000000003\n")) == ["CAP_CHOWN", "CAP_DAC_OVERRIDE"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", Account(0, 0)),
        ("worker", Account(1000, 100, (7,))),
        ("1000", Account(1000, 100, (7,))),
        ("4711", Account(4711, 0)),
        ("worker:extra", Account(1000, 7)),
        ("4711:12", Account(4711, 12)),
    ],
)
def test_an_image_s_user_is_found(name: str, expected: Account) -> None:
    assert accounts.find(ACCOUNTS, name) == expected


@pytest.mark.parametrize("name", ["nobody", "worker:nobody"])
def test_an_unknown_user_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=r"unable to find (user|group) nobody"):
        accounts.find(ACCOUNTS, name)


def test_rules_of_a_profile_hold_for_some_capabilities_and_architectures() -> None:
    rules = [
        {"names": ["always"], "action": "SCMP_ACT_ALLOW", "args": [], "includes": {}},
        {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["arm_call"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm64"]}},
    ]
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "syscalls": rules}
    with_it = seccomp.resolve(profile, ["CAP_SYS_ADMIN"], "x86_64")["syscalls"]
    without = seccomp.resolve(profile, [], "aarch64")["syscalls"]

    assert with_it == [
        {"names": ["always"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["mount"], "action": "SCMP_ACT_ALLOW"},
    ]
    assert [each["names"][0] for each in without] == ["always", "mount", "arm_call"]
    assert without[1] == {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}


def test_the_default_profile_is_made_as_narrow_as_engines_have_it() -> None:
    rules = [
        {"names": ["clone", "clone3", "mount", "unshare", "read"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["keyctl"], "action": "SCMP_ACT_ALLOW"},
    ]
    resolved = seccomp.resolve({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules}, [], "x86_64")

    def allowed(*capabilities: str) -> set[str]:
        tight = seccomp.tighten(resolved, capabilities)["syscalls"]
        return {name for each in tight for name in each["names"] if each["action"] == "SCMP_ACT_ALLOW"}

    assert allowed() == {"read", "clone"}
    assert allowed("CAP_SYS_ADMIN") == {"read", "clone", "clone3", "mount", "unshare"}
    clone = next(each for each in seccomp.tighten(resolved, [])["syscalls"] if each["names"] == ["clone"])
    assert clone["args"][0]["op"] == "SCMP_CMP_MASKED_EQ"
