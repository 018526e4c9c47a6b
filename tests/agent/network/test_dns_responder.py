"""The DNS responder on real sockets: what it answers, to whom, and what it does with nonsense and with too much."""

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import dnslib
import pytest
from dnslib import DNSRecord

from app.agent.network.dns_responder import SHARE, DnsResponder
from app.agent.network.dns_upstream import DnsUpstream
from app.agent.network.service_lookup import NoAnswerError
from app.client.protocol import ServiceEndpoint, ServicePortRecord, ServiceRecords, ServiceSlice

ADDRESS = "127.0.0.1"
RING = "ring.team.svc.cluster.local"


class Services:
    """Lookup of one Service, `ring` in `team`, with so many endpoints."""

    def __init__(self, endpoints: int = 2) -> None:
        found = tuple(
            ServiceEndpoint((f"10.0.{each // 250}.{each % 250 + 1}",), f"w-{each}") for each in range(endpoints)
        )
        self.ring = ServiceRecords(
            found=True, slices=(ServiceSlice(endpoints=found, ports=(ServicePortRecord("http", "tcp", 80),)),)
        )
        self.asked: list[tuple[str, str]] = []
        self.away = False
        self.hold: asyncio.Event | None = None

    async def records(self, namespace: str, name: str) -> ServiceRecords:
        self.asked.append((namespace, name))
        if self.hold:
            await self.hold.wait()
        if self.away:
            raise NoAnswerError("gone")
        return self.ring if (namespace, name) == ("team", "ring") else ServiceRecords()

    async def names(self, address: str) -> list[str]:
        return ["w-0.ring.team.svc"] if address == "10.0.0.1" else []


class Outside:
    """The rest of the world, in which every name has the same address."""

    async def ask(self, question: bytes, *, tcp: bool) -> bytes | None:
        reply = DNSRecord.parse(question).reply()
        reply.add_answer(dnslib.RR(reply.q.qname, rdata=dnslib.A("192.0.2.2" if tcp else "192.0.2.1")))
        return bytes(reply.pack())


class Client:
    """Asks one responder, by both transports."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def send(self, data: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        answers: asyncio.Queue[bytes] = asyncio.Queue()

        class Receive(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, _: object) -> None:
                answers.put_nowait(data)

        transport, _ = await loop.create_datagram_endpoint(Receive, remote_addr=(ADDRESS, self.port))
        try:
            transport.sendto(data)
            async with asyncio.timeout(10):
                return await answers.get()
        finally:
            transport.close()

    async def ask(self, name: str, kind: str = "A") -> DNSRecord:
        return DNSRecord.parse(await self.send(DNSRecord.question(name, kind).pack()))

    async def ask_tcp(self, name: str, kind: str = "A") -> DNSRecord:
        reader, writer = await asyncio.open_connection(ADDRESS, self.port)
        question = DNSRecord.question(name, kind).pack()
        writer.write(struct.pack("!H", len(question)) + question)
        (size,) = struct.unpack("!H", await reader.readexactly(2))
        answer = await reader.readexactly(size)
        writer.close()
        return DNSRecord.parse(answer)


@asynccontextmanager
async def serving(services: Services, is_local: Callable[[str], bool] = lambda _: True) -> AsyncIterator[Client]:
    responder = DnsResponder(services, Outside(), is_local)
    port = await responder.start(ADDRESS, 0)
    try:
        yield Client(port)
    finally:
        await responder.close()


def data(answer: DNSRecord) -> list[str]:
    return sorted(str(each.rdata) for each in answer.rr)


async def test_names_of_the_cluster_are_answered_and_others_handed_on() -> None:
    async with serving(Services()) as client:
        assert data(await client.ask(RING)) == ["10.0.0.1", "10.0.0.2"]
        assert data(await client.ask(f"W-1.{RING.upper()}")) == ["10.0.0.2"]
        assert data(await client.ask("kubernetes.default.svc.cluster.local")) == [ADDRESS]
        assert data(await client.ask("example.com")) == ["192.0.2.1"]
        assert data(await client.ask_tcp("example.com")) == ["192.0.2.2"]
        assert data(await client.ask("1.0.0.10.in-addr.arpa", "PTR")) == [f"w-0.{RING}."]
        assert data(await client.ask("9.0.0.10.in-addr.arpa", "PTR")) == ["192.0.2.1"]
        ports = await client.ask(f"_http._tcp.{RING}", "SRV")
        assert data(ports) == [f"0 100 80 w-{each}.{RING}." for each in range(2)]
        assert sorted(str(each.rdata) for each in ports.ar) == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        (RING, "AAAA", "NOERROR"),
        (f"w-9.{RING}", "A", "NXDOMAIN"),
        ("none.team.svc.cluster.local", "A", "NXDOMAIN"),
        ("whatever.cluster.local", "A", "NXDOMAIN"),
    ],
)
async def test_what_is_not_there_is_told_with_how_long_that_may_be_remembered(name: str, kind: str, code: str) -> None:
    async with serving(Services()) as client:
        answer = await client.ask(name, kind)
    assert (dnslib.RCODE[answer.header.rcode], data(answer)) == (code, [])
    (soa,) = answer.auth
    assert (soa.ttl, soa.rdata.times[-1]) == (1, 1)


async def test_an_answer_that_is_too_long_is_asked_for_again_by_tcp() -> None:
    async with serving(Services(endpoints=500)) as client:
        short = await client.ask(RING)
        assert (short.header.tc, data(short)) == (1, [])
        assert len(data(await client.ask_tcp(RING))) == 500


async def test_while_the_api_is_away_a_name_is_neither_there_nor_not() -> None:
    services = Services()
    services.away = True
    async with serving(services) as client:
        assert dnslib.RCODE[(await client.ask(RING)).header.rcode] == "SERVFAIL"


async def test_nonsense_asks_the_api_nothing() -> None:
    services = Services()
    good = DNSRecord.question(RING).pack()
    answer = DNSRecord.parse(good).reply().pack()
    async with serving(services) as client:
        for piece in (good[:-3], good[:12] + b"\xc0\x0c\x00\x01\x00\x01", good[:2] + b"\x28\x00" + good[4:]):
            refused = DNSRecord.parse((await client.send(piece))[:12])
            assert (refused.header.qr, dnslib.RCODE[refused.header.rcode]) in [(1, "FORMERR"), (1, "NOTIMP")]
        responder = DnsResponder(services, Outside(), lambda _: True)
        for piece in (b"", b"x", answer, *(os.urandom(size) for size in range(1, 200))):
            await responder.answer(piece, tcp=False)
        assert services.asked == []
        assert data(await client.ask(RING)) == ["10.0.0.1", "10.0.0.2"]


async def test_others_than_the_node_s_pods_get_nothing() -> None:
    services = Services()
    async with serving(services, is_local=lambda _: False) as client:
        with pytest.raises((EOFError, OSError)):
            await client.ask_tcp(RING)
        responder = DnsResponder(services, Outside(), lambda address: address == "10.1.0.2")
        assert await responder._admit("10.1.0.3", DNSRecord.question(RING).pack(), tcp=False) is None
    assert services.asked == []


async def test_one_pod_that_asks_without_end_leaves_room_for_others() -> None:
    services = Services()
    services.hold = asyncio.Event()
    responder = DnsResponder(services, Outside(), lambda _: True)
    question = DNSRecord.question(RING).pack()
    flood = [asyncio.ensure_future(responder._admit("10.1.0.2", question, tcp=False)) for _ in range(2 * SHARE)]
    other = asyncio.ensure_future(responder._admit("10.1.0.3", question, tcp=False))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    services.hold.set()

    assert await other is not None
    assert sum(each is not None for each in await asyncio.gather(*flood)) == SHARE


async def test_upstream_takes_only_the_answer_to_its_question() -> None:
    """A server that first sends an answer under another number, as one would that guesses."""
    loop = asyncio.get_running_loop()
    reply = b""

    class Server(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
            nonlocal reply
            reply = data[:2] + data[2:] + b"true"
            self.transport.sendto(bytes([data[0] ^ 1]) + data[1:] + b"lie", source)  # type: ignore[attr-defined]
            self.transport.sendto(reply, source)  # type: ignore[attr-defined]

    transport, _ = await loop.create_datagram_endpoint(Server, local_addr=(ADDRESS, 0))
    port = transport.get_extra_info("sockname")[1]
    try:
        answer = await DnsUpstream(lambda: [ADDRESS], port).ask(b"\x07\x07question", tcp=False)
    finally:
        transport.close()
    assert answer == b"\x07\x07questiontrue"
    assert await DnsUpstream(list).ask(b"\x07\x07question", tcp=False) is None
