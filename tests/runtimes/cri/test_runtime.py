"""What is particular to engines behind CRI: they tell events in their own ways, or none."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from app.runtimes.base import CreateError, SandboxSpec, Unsupported
from app.runtimes.cri import config as cri_config
from app.runtimes.cri import containers as cri_containers
from app.runtimes.cri.containers import _fields
from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from tests.runtimes.conftest import Lab, a_key, exits


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[CriEngine]:
    """What CRI-O is unless it is configured to tell events: it answers who asks for them, and ends the answer at once."""

    async def nothing(_request: bytes, _context: Any) -> None:
        return

    server = grpc.aio.server()
    methods = {"GetContainerEvents": grpc.unary_stream_rpc_method_handler(nothing)}
    handlers = [grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods)]
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(f"unix://{tmp_path}/socket")
    await server.start()
    engine = CriEngine(f"unix://{tmp_path}/socket")
    yield engine
    await engine.close()
    await server.stop(None)


async def test_an_engine_that_ends_its_events_at_once_is_no_engine_that_went_away(quiet: CriEngine) -> None:
    with pytest.raises(Unsupported, match="tells no events"):
        await anext(cri_containers.end_events(quiet))


async def test_an_engine_without_events_is_asked_again_and_again(cri: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtimes.cri.containers._BY_CONTAINERD", "/no.such.Service/Method")
    await cri.restart()
    key = await cri.start(exits(6))

    assert (await cri.ended(key)).exit_code == 6


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\x0a\x01a\x10\x96\x01\x22\x02bc", [(1, b"a"), (2, 150), (4, b"bc")], id="texts and numbers"),
        pytest.param(b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x1a\x00", [(3, b"")], id="none of fixed length"),
        pytest.param(b"\x0a\x85", [(1, b"")], id="cut off"),
    ],
)
def test_fields_of_a_message_are_found(message: bytes, expected: list[tuple[int, int | bytes]]) -> None:
    assert [*_fields(message)] == expected


def test_an_exit_code_that_the_engine_could_not_read_is_unknown() -> None:
    found = pb.ContainerStatus(id="x", state=pb.CONTAINER_EXITED, exit_code=-1, reason="Error")
    status = cri_containers.status_of(a_key(), found, "")

    assert (status.exit_code, status.reason) == (None, "ContainerStatusUnknown")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("busybox", "docker.io/library/busybox:latest", id="short"),
        pytest.param("localhost/some/image:1", "localhost/some/image:1", id="whole"),
    ],
)
def test_an_image_is_named_in_whole_to_the_engine_be_it_given(name: str, expected: str) -> None:
    """CRI-O would look elsewhere for a short one than where it was pulled from, and refuses a container without the other."""
    told = cri_config.image(name)

    assert (told.image, told.user_specified_image) == (expected, expected)


async def test_the_handler_of_a_runtime_class_is_the_engine_s(cri: Lab) -> None:
    """containerd's own is called runc."""
    spec = SandboxSpec(pod_uid="of-a-class", namespace="default", name="p", handler="no-such")
    with pytest.raises(CreateError, match='no runtime for "no-such" is configured'):
        await cri.runtime.run_sandbox(spec)

    assert (await cri.runtime.run_sandbox(replace(spec, handler="runc"))).ip
    await cri.runtime.remove_sandbox("of-a-class")
