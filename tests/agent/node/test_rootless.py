"""What a node says that its containers cannot have, and the refusal of who asks for it."""

from collections.abc import Sequence

import pytest

from app.agent.node import rootless
from app.agent.pods.environment import ContainerConfigError
from app.runtimes.base import ResourceLimits, RuntimeInfo

OF_ROOT = RuntimeInfo(name="oci", version="1", survives_agent=True, images=True, limits=True)
OF_A_USER = RuntimeInfo(
    name="oci", version="1", survives_agent=True, images=True, rootless=True, refuses_limits="no cgroups. Make some"
)


def check(
    info: RuntimeInfo, *, limits: ResourceLimits | None = None, devices: Sequence[str] = (), privileged: bool = False
) -> None:
    rootless.check("main", limits or ResourceLimits(), devices, privileged=privileged, info=info)


@pytest.mark.parametrize(
    ("asks", "refusal"),
    [
        pytest.param({"limits": ResourceLimits(memory=1)}, "cannot keep limits .*: no cgroups. Make some", id="memory"),
        pytest.param({"limits": ResourceLimits(cpu=1)}, "cannot keep limits", id="cpu"),
        pytest.param(
            {"privileged": True}, "privileged containers are not possible: .* jobplane.dev/rootless", id="all"
        ),
        pytest.param({"devices": ["/dev/no-such"]}, "device /dev/no-such is closed to user", id="a device"),
    ],
)
def test_an_ordinary_user_s_node_refuses_what_it_cannot_give(asks: dict[str, object], refusal: str) -> None:
    with pytest.raises(ContainerConfigError, match=f"container main: .*{refusal}"):
        check(OF_A_USER, **asks)  # type: ignore[arg-type]
    check(OF_ROOT, **asks)  # type: ignore[arg-type]


def test_what_it_can_give_is_not_refused() -> None:
    check(OF_A_USER, limits=ResourceLimits(cpu_request=100), devices=["/dev/null"])


def test_the_node_says_so() -> None:
    assert rootless.labels(OF_ROOT) == {}
    assert rootless.condition(OF_ROOT) is None
    assert rootless.labels(OF_A_USER) == {"jobplane.dev/rootless": "true", "jobplane.dev/limits": "none"}
    said = rootless.condition(OF_A_USER)
    assert said is not None
    assert (said.type, said.status) == ("jobplane.dev/ResourceLimits", "False")
    assert "refused: no cgroups" in said.message
