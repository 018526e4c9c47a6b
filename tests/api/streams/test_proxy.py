"""pods/proxy and services/proxy, from an HTTP client through the API and an agent that only dials out to a real HTTP server."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
import pytest
import pytest_asyncio
from msgspec.structs import replace

from app.api.streams import http_exchange, revocation
from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.endpointslice import Endpoint, EndpointPort, EndpointSlice
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service, ServicePort, ServiceSpec
from app.kinds.pod.container import Container, ContainerPort
from app.kinds.pod.pod import PodIP
from app.machinery.base import ObjectMeta, ObjectReference
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.runtimes.base import ContainerKey, ContainerSpec, Pipe, SandboxSpec
from app.runtimes.process import sessions
from app.runtimes.simulated.runtime import SimulatedRuntime
from tests.api.calling import NODE, agent
from tests.api.people import bind, cluster_role, meeting, rule
from tests.conftest import Lasting
from tests.registry.examples import PODS, a_pod, create
from tests.webhook_server import tls

pytestmark = pytest.mark.asyncio(loop_scope="module")
CORE = "/api/v1/namespaces/default"
IP = "10.1.2.3"


class LoopbackRuntime(SimulatedRuntime):
    """Pods whose ports are those of this machine."""

    async def dial(self, pod_uid: str, port: int) -> Pipe:
        return await sessions.dial(port)


@dataclass
class HttpServer:
    """The program in the pod. `heads`: what it was asked, in order."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client has gone before its answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            method, path, _ = head.split(" ", 2)
            if path.startswith("/early"):
                writer.write(b"HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\nno")
                while await reader.read(1 << 16):  # to close before would reset the connection, and the answer with it
                    pass
            elif path.startswith("/socket"):
                writer.write(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello ")
                while data := await reader.read(1000):
                    writer.write(data.upper())
            elif path.startswith("/hang"):
                await reader.read()
                self.left.set()
            elif path.startswith("/endless"):
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while not writer.is_closing():
                    writer.write(b"1\r\na\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            elif path.startswith("/answers"):
                writer.write(ANSWERS[path.rpartition("/")[2]])
            else:
                body = await self._read_body(head.lower(), reader)
                said = json.dumps({"method": method, "path": path, "size": len(body)}).encode()
                length = f"Content-Length: {len(said)}\r\n".encode()
                writer.write(
                    b"HTTP/1.1 201 Made\r\nX-From: pod\r\n%b\r\n%b" % (length, b"" if method == "HEAD" else said)
                )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _read_body(self, head: str, reader: asyncio.StreamReader) -> bytes:
        if "content-length: " in head:
            return await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))
        body = b""
        while "transfer-encoding: chunked" in head:
            length = int(await reader.readline(), 16)
            body += (await reader.readexactly(length + 2))[:-2]
            if not length:
                break
        return body


async def speak_no_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"no TLS\r\n")
    writer.close()


ANSWERS = {
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    "until-end": b"HTTP/1.1 200 OK\r\nKeep-Alive: 5\r\n\r\nabcde",
    "continued": b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
    "nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "broken": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    "no-http": b"SSH-2.0-x\r\n",
    "silence": b"",
    "here": b"HTTP/1.1 302 X\r\nLocation: /there/?a=b\r\nContent-Length: 0\r\n\r\n",
    "pod": b"HTTP/1.1 302 X\r\nLocation: http://10.1.2.3:8080/there\r\nContent-Length: 0\r\n\r\n",
    "elsewhere": b"HTTP/1.1 302 X\r\nLocation: http://example.com/there\r\nContent-Length: 0\r\n\r\n",
    "relative": b"HTTP/1.1 302 X\r\nLocation: there\r\nContent-Length: 0\r\n\r\n",
    "long": b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
}


@pytest.fixture
def admin(lasting_admin: httpx.AsyncClient, restored: Registry) -> httpx.AsyncClient:
    return lasting_admin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime() -> AsyncIterator[LoopbackRuntime]:
    made = LoopbackRuntime(lambda: datetime.now(UTC))
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def node(lasting: Lasting, lasting_url: str, runtime: LoopbackRuntime) -> AsyncIterator[None]:
    async with agent(lasting.registry, lasting_url, runtime):
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def program() -> AsyncIterator[HttpServer]:
    made = HttpServer()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()


@pytest_asyncio.fixture(loop_scope="module")
async def pod(restored: Registry, runtime: LoopbackRuntime, program: HttpServer) -> str:
    """A running pod; the path of its proxy."""
    container = Container(name="main", image="x", ports=(ContainerPort(container_port=program.port),))
    simulate = {"annotations": {"jobplane.dev/simulate": "seconds=1000"}}
    made = await create(restored, PODS, a_pod("p", simulate, node_name=NODE, containers=(container,)))
    uid = made.metadata.uid
    await objects.rewrite(
        restored,
        PODS,
        "default",
        "p",
        lambda each: replace(each, status=replace(each.status, phase="Running", pod_ip=IP, pod_ips=(PodIP(ip=IP),))),
    )
    await runtime.run_sandbox(
        SandboxSpec(pod_uid=uid, namespace="default", name="p", annotations=simulate["annotations"])
    )
    key = ContainerKey(uid, "main", 0)
    await runtime.start_container(ContainerSpec(key=key, image="", command=["sleep", "1000"], env={}))
    program.heads.clear()
    return f"{CORE}/pods/p/proxy"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_method_reaches_the_pod(
    admin: httpx.AsyncClient, pod: str, program: HttpServer, method: str
) -> None:
    answered = await admin.request(method, f"{pod}/a%2Fb//c/?x=1&y=%20", content=b"abc")

    assert answered.status_code == 201, answered.text
    assert answered.json() == {"method": method, "path": "/a%2Fb//c/?x=1&y=%20", "size": 3}
    assert answered.headers["x-from"] == "pod"
    head = program.heads[0].lower()
    assert "authorization" not in head
    assert f"x-forwarded-uri: {pod}/a%2fb//c/\r\n".lower() in head
    assert "x-forwarded-for: 127.0.0.1\r\n" in head


async def test_head_has_no_body(admin: httpx.AsyncClient, pod: str) -> None:
    answered = await admin.head(f"{pod}/x")

    assert (answered.status_code, answered.content) == (201, b"")
    assert int(answered.headers["content-length"]) > 10


async def test_bodies_are_streamed(admin: httpx.AsyncClient, pod: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 50_000

    answered = await admin.post(f"{pod}/x", content=chunks())
    assert answered.json()["size"] == 2_000_000
    answered = await admin.post(f"{pod}/x", content=b"x" * 5_000_000)
    assert answered.json()["size"] == 5_000_000, "more than an object may have"
    answered = await admin.post(f"{pod}/early", content=b"x" * 1_000_000)
    assert (answered.status_code, answered.content) == (413, b"no")


@pytest.mark.parametrize("name", ["chunked", "until-end", "continued"])
async def test_answers_of_every_framing(admin: httpx.AsyncClient, pod: str, name: str) -> None:
    answered = await admin.get(f"{pod}/answers/{name}")

    assert (answered.status_code, answered.content) == (200, b"abcde")
    assert "keep-alive" not in answered.headers


async def test_an_answer_without_a_body(admin: httpx.AsyncClient, pod: str) -> None:
    assert (await admin.get(f"{pod}/answers/nothing")).status_code == 204


async def test_an_answer_that_breaks_off_is_not_whole(admin: httpx.AsyncClient, pod: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await admin.get(f"{pod}/answers/broken")


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("here", f"{CORE}/pods/p/proxy/there/?a=b"),
        ("elsewhere", "http://example.com/there"),
        ("relative", "there"),
    ],
)
async def test_redirects_lead_through_the_proxy(admin: httpx.AsyncClient, pod: str, name: str, location: str) -> None:
    answered = await admin.get(f"{pod}/answers/{name}")

    assert (answered.status_code, answered.headers["location"]) == (302, location)


async def test_a_path_without_its_slash_is_redirected(admin: httpx.AsyncClient, pod: str) -> None:
    answered = await admin.get(f"{pod}?a=b")
    assert (answered.status_code, answered.headers["location"]) == (301, f"{pod}/?a=b")
    assert (await admin.post(pod, content=b"")).json()["path"] == "/"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no-http", "malformed HTTP response"),
        ("silence", "EOF"),
        ("long", "server response headers exceeded"),
    ],
)
async def test_what_is_no_http_is_a_503(admin: httpx.AsyncClient, pod: str, name: str, text: str) -> None:
    answered = (await admin.get(f"{pod}/answers/{name}")).json()

    assert (answered["code"], answered["reason"]) == (503, "ServiceUnavailable")
    assert answered["message"].startswith("error trying to reach service: ")
    assert text in answered["message"]


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("p:1", 503, f"error trying to reach service: dial tcp {IP}:1: connect: connection refused"),
        ("p:http", 503, "error trying to reach service: dial tcp: lookup tcp/http: unknown port"),
        ("ftp:p:1", 400, 'invalid pod request "ftp:p:1"'),
        ("a:b:c:d", 400, 'invalid pod request "a:b:c:d"'),
        ("nobody", 404, 'pods "nobody" not found'),
    ],
)
async def test_refusals(admin: httpx.AsyncClient, pod: str, name: str, code: int, text: str) -> None:
    answered = (await admin.get(f"{CORE}/pods/{name}/proxy/")).json()

    assert (answered["code"], answered["message"]) == (code, text)


async def test_a_pod_that_does_not_run(admin: httpx.AsyncClient, restored: Registry) -> None:
    await create(restored, PODS, a_pod("waiting"))
    assert (await admin.get(f"{CORE}/pods/waiting/proxy/")).json()["message"] == "address not allowed"
    await create(restored, PODS, a_pod("gone", node_name=NODE))
    answered = (await admin.get(f"{CORE}/pods/gone:80/proxy/")).json()
    assert answered["message"] == 'error trying to reach service: pod not found ("gone_default")'


async def test_tls_to_the_pod(admin: httpx.AsyncClient, pod: str) -> None:
    secure, context = HttpServer(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls().cert, tls().key)
    async with await asyncio.start_server(secure.serve, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        answered = await admin.post(f"{CORE}/pods/https:p:{port}/proxy/x", content=b"x" * 300_000)
    assert answered.json()["size"] == 300_000

    async with await asyncio.start_server(speak_no_tls, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        refused = (await admin.get(f"{CORE}/pods/https:p:{port}/proxy/")).json()
    assert refused["message"].startswith("error trying to reach service: tls: ")


async def test_upgrades_are_handed_over(admin: httpx.AsyncClient, pod: str, program: HttpServer) -> None:
    url = admin.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    lines = [f"GET {pod}/socket HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: echo"]
    lines += [f"Authorization: {admin.headers['authorization']}", "", ""]
    writer.write("\r\n".join(lines).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.write(b"abc")
    assert await reader.readexactly(9) == b"hello ABC"
    writer.close()

    assert head.startswith("HTTP/1.1 101 ")
    wanted = {"Connection": "Upgrade", "Upgrade": "echo"}
    for name, code, text in (
        ("chunked", 500, "invalid upgrade response: status code 200"),
        ("here", 500, "invalid upgrade response: status code 302"),
        ("silence", 503, "error trying to reach service: EOF"),
    ):
        refused = (await admin.get(f"{pod}/answers/{name}", headers=wanted)).json()
        assert (refused["code"], refused["message"]) == (code, text)
    refused = await admin.get(f"{pod}/early", headers=wanted)
    assert (refused.status_code, refused.content) == (413, b"no")
    assert "Upgrade: echo\r\n" in program.heads[0]
    assert "uthorization" not in program.heads[0]


async def test_a_client_that_goes_takes_its_connection_along(
    admin: httpx.AsyncClient, pod: str, program: HttpServer
) -> None:
    program.left.clear()
    with pytest.raises(httpx.ReadTimeout):
        await admin.get(f"{pod}/hang", timeout=httpx.Timeout(30, read=0.2))
    await asyncio.wait_for(program.left.wait(), 60)


# Services


def a_service(*ports: ServicePort) -> Service:
    return Service(metadata=ObjectMeta(name="s"), spec=ServiceSpec(selector={"a": "b"}, ports=ports))


async def a_slice(registry: Registry, port: EndpointPort, name: str = "p", **of: str) -> None:
    target = ObjectReference(kind="Pod", namespace="default", name=name)
    meta = ObjectMeta(name="s-1", labels={"kubernetes.io/service-name": "s"})
    endpoint = Endpoint(addresses=(of.get("ip", IP),), target_ref=target)
    await create(
        registry, SLICES, EndpointSlice(metadata=meta, address_type="IPv4", endpoints=(endpoint,), ports=(port,))
    )


async def test_a_service_leads_to_a_ready_pod(
    admin: httpx.AsyncClient, restored: Registry, pod: str, program: HttpServer
) -> None:
    await create(restored, SERVICES, a_service(ServicePort(name="web", port=80)))
    await a_slice(restored, EndpointPort(name="web", port=program.port))

    for name in ("s:80", "s:web", "http:s:web"):
        answered = await admin.get(f"{CORE}/services/{name}/proxy/x")
        assert answered.json()["path"] == "/x", answered.text
    redirected = await admin.get(f"{CORE}/services/s:80/proxy/answers/here")
    assert redirected.headers["location"] == f"{CORE}/services/s:80/proxy/there/?a=b"
    for name, code, text in (
        ("s:81", 503, 'no service port 81 found for service "s"'),
        ("s", 503, 'no endpoints available for service "s"'),
        ("s:other", 503, 'no endpoints available for service "s"'),
        ("t", 503, 'no endpoints available for service "t"'),
        ("t:80", 404, 'services "t" not found'),
        ("a:b:c:d", 400, 'invalid service request "a:b:c:d"'),
    ):
        refused = (await admin.get(f"{CORE}/services/{name}/proxy/")).json()
        assert (refused["code"], refused["message"]) == (code, text)


async def test_a_slice_leads_to_no_address_that_is_not_its_pods(
    admin: httpx.AsyncClient, restored: Registry, pod: str, program: HttpServer
) -> None:
    await a_slice(restored, EndpointPort(name="", port=program.port), ip="10.9.9.9")

    refused = (await admin.get(f"{CORE}/services/s/proxy/")).json()

    assert refused["message"] == 'no endpoints available for service "s"'


# Rights


async def test_each_method_needs_its_verb(
    admin: httpx.AsyncClient, restored: Registry, lasting_url: str, pod: str
) -> None:
    await cluster_role(admin, "reader", rule("get", "pods/proxy"))
    await bind(admin, "reader", ["User:bo"])
    async with meeting(restored, lasting_url) as people:
        bo = await people.user("bo")
        assert (await bo.get(f"{pod}/x")).status_code == 201
        assert (await bo.head(f"{pod}/x")).status_code == 201
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert (await bo.request(method, f"{pod}/x")).status_code == 403
        assert (await bo.get(f"{CORE}/services/s/proxy/")).status_code == 403


async def test_a_client_that_loses_its_right_is_cut_short(
    admin: httpx.AsyncClient, restored: Registry, lasting_url: str, pod: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation, "SECONDS", 0.05)
    await cluster_role(admin, "reader", rule("get", "pods/proxy"))
    await bind(admin, "reader", ["User:bo"])
    async with meeting(restored, lasting_url) as people:
        bo = await people.user("bo")
        waiting = asyncio.create_task(bo.get(f"{pod}/hang"))
        async with bo.stream("GET", f"{pod}/endless") as endless:
            pieces = endless.aiter_raw()
            assert await anext(pieces)
            await admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/b")
            with pytest.raises(httpx.RemoteProtocolError):
                _ = [piece async for piece in pieces]
        assert (await waiting).status_code == 403


async def test_the_agents_reason_is_told_in_gos_words() -> None:
    assert http_exchange._dial_text("a:1", "x: [Errno 111] y").endswith("connect: connection refused")
    assert http_exchange._dial_text("a:1", "timed out") == "dial tcp a:1: timed out"
