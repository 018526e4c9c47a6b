"""DNS responder: answers the pods of this node on UDP and TCP. Names of the cluster are answered from the API's Services
(`service_lookup`), all others by the node's name servers (`dns_upstream`).

Bounds: questions of at most 512 bytes by UDP and 64 KiB by TCP, AT_ONCE of them at a time, SHARE from one address, and
CONNECTIONS by TCP. What is beyond is dropped, and asked again by the client. So are questions of others than this node's pods.
"""

import asyncio
import random
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, cast

import dnslib
from dnslib import QTYPE, RCODE, DNSRecord

from app.agent.network import service_names
from app.agent.network.service_lookup import NoAnswerError
from app.agent.network.service_names import DOMAIN, Record, Records
from app.client.protocol import ServiceRecords
from app.structured_logging import Logger

PORT = 53
TTL = 1  # seconds: names follow pods
AT_ONCE, SHARE, CONNECTIONS = 512, 128, 64
SMALL, LARGE, LARGEST = 512, 4096, 65535  # bytes of an answer: by UDP, by UDP to those that take it, by TCP
IDLE = 10.0  # seconds
OPT = 41
IN = 1

logger = Logger(__name__)


class Lookup(Protocol):
    """Where the names come from. Both raise NoAnswerError."""

    async def records(self, namespace: str, name: str) -> ServiceRecords: ...

    async def names(self, address: str) -> list[str]: ...


class Upstream(Protocol):
    async def ask(self, question: bytes, *, tcp: bool) -> bytes | None:
        """None if nobody answers."""


class DnsResponder:
    """is_local: whether an address is of a pod of this node. `kubernetes.default.svc` resolves to the last address served at."""

    def __init__(self, lookup: Lookup, upstream: Upstream, is_local: Callable[[str], bool]) -> None:
        self._lookup, self._upstream, self._is_local = lookup, upstream, is_local
        self._api = ""
        self._asking: Counter[str] = Counter()
        self._connections = 0
        self._listening: list[asyncio.DatagramTransport | asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, address: str, port: int = PORT) -> int:
        """Serve at an address, besides those before; return the port. Raises OSError if it cannot be had."""
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve_connection, address, port)
        port = server.sockets[0].getsockname()[1]
        try:
            transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), local_addr=(address, port))
        except OSError:
            server.close()
            raise
        self._api = address
        self._listening += [transport, server]
        return port

    async def close(self) -> None:
        for each in self._listening:
            each.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def on_datagram(self, data: bytes, source: tuple[str, int], send: Callable[[bytes], None]) -> None:
        if len(data) > SMALL:
            return
        self._spawn(self._answer_datagram(data, source[0], send))

    async def _answer_datagram(self, data: bytes, source: str, send: Callable[[bytes], None]) -> None:
        if answer := await self._admit(source, data, tcp=False):
            send(answer)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = writer.get_extra_info("peername")[0]
        if self._connections >= CONNECTIONS or not self._is_local(source):
            writer.close()
            return
        self._connections += 1
        try:
            while True:
                async with asyncio.timeout(IDLE):
                    (size,) = struct.unpack("!H", await reader.readexactly(2))
                    data = await reader.readexactly(size)
                answer = await self._admit(source, data, tcp=True)
                if answer is None:
                    return
                writer.write(struct.pack("!H", len(answer)) + answer)
                async with asyncio.timeout(IDLE):
                    await writer.drain()
        except (OSError, TimeoutError, EOFError):
            return
        finally:
            self._connections -= 1
            writer.close()

    async def _admit(self, source: str, data: bytes, *, tcp: bool) -> bytes | None:
        if self._asking.total() >= AT_ONCE or self._asking[source] >= SHARE or not self._is_local(source):
            return None
        self._asking[source] += 1
        try:
            return await self.answer(data, tcp=tcp)
        except Exception as error:
            logger.error("unexpected error; a DNS question gets no answer", traceback_of=error)
            return None
        finally:
            self._asking[source] -= 1
            if not self._asking[source]:
                del self._asking[source]

    async def answer(self, data: bytes, *, tcp: bool) -> bytes | None:
        """Return the answer to a message; None for one that gets none."""
        try:
            asked = DNSRecord.parse(data)
        except (dnslib.DNSError, ValueError):
            return _refuse(data, RCODE.FORMERR)
        if asked.header.qr:
            return None
        if asked.header.opcode != 0:
            return _refuse(data, RCODE.NOTIMP)
        if len(asked.questions) != 1:
            return _refuse(data, RCODE.FORMERR)
        name = str(asked.q.qname).rstrip(".").lower()
        try:
            records = await self._find(name, asked.q.qtype if asked.q.qclass == IN else 0)
        except NoAnswerError as error:
            logger.info("cannot answer a name: the API does not", error=error)
            return _refuse(data, RCODE.SERVFAIL)
        if records is None:
            return await self._upstream.ask(data, tcp=tcp) or _refuse(data, RCODE.SERVFAIL)
        return _pack(asked, records, LARGEST if tcp else _room(asked))

    async def _find(self, name: str, kind: int) -> Records | None:
        """The records of a name; None if others know it."""
        if kind == QTYPE.PTR and (address := service_names.pointer_address(name)):
            names = await self._lookup.names(address)
            return Records([Record(name, "PTR", f"{each}.{DOMAIN}") for each in names]) if names else None
        if not service_names.is_inside(name):
            return None
        asked = service_names.parse(name)
        if asked is None:
            return service_names.NOTHING
        if asked[:2] == service_names.API:
            records = [Record(name, "A", self._api)] if not (asked.endpoint or asked.port) else []
            return Records(records)
        return service_names.answer(asked, await self._lookup.records(asked.namespace, asked.service))


def _room(asked: DNSRecord) -> int:
    """Return how long an answer the client takes by UDP."""
    sizes = [each.rclass for each in asked.ar if each.rtype == OPT]
    return max(SMALL, min(sizes[0], LARGE)) if sizes else SMALL


def _refuse(data: bytes, code: int) -> bytes | None:
    """The header alone, with this code; None for what has no header."""
    if len(data) < 12:
        return None
    flags = struct.unpack("!H", data[2:4])[0]
    return data[:2] + struct.pack("!HHHHH", 0x8000 | (flags & 0x7900) | code, 0, 0, 0, 0)


def _pack(asked: DNSRecord, records: Records, room: int) -> bytes:
    """The answer; cut, with the bit that says so, if there is no room for it."""
    reply = asked.reply(ra=1, aa=1)
    wanted = QTYPE.get(asked.q.qtype)
    answers = [each for each in records.answers if wanted in (each.type, "ANY") or each.type == "CNAME"]
    random.shuffle(answers)
    for record in answers:
        reply.add_answer(_rr(record))
    for record in records.additional if answers else ():
        reply.add_ar(_rr(record))
    if not records.answers:
        reply.header.rcode = RCODE.NXDOMAIN
    if not answers:
        reply.add_auth(_soa())
    if any(each.rtype == OPT for each in asked.ar):
        reply.add_ar(dnslib.EDNS0(udp_len=LARGE))
    packed: bytes = reply.pack()
    if len(packed) <= room:
        return packed
    if records.additional:
        return _pack(asked, Records(records.answers), room)
    return bytes(reply.truncate().pack())


def _rr(record: Record) -> dnslib.RR:
    match record.type:
        case "A":
            data = dnslib.A(record.data)
        case "AAAA":
            data = dnslib.AAAA(record.data)
        case "SRV":
            port, _, target = record.data.partition(" ")
            data = dnslib.SRV(0, 100, int(port), target)
        case "PTR":
            data = dnslib.PTR(record.data)
        case _:
            data = dnslib.CNAME(record.data)
    return dnslib.RR(record.name, QTYPE.reverse[record.type], ttl=TTL, rdata=data)


def _soa() -> dnslib.RR:
    """Tells resolvers for how long they may remember that there is nothing."""
    times = (1, 7200, 1800, 86400, TTL)
    soa = dnslib.SOA(f"ns.dns.{DOMAIN}", f"hostmaster.{DOMAIN}", times)
    return dnslib.RR(DOMAIN, QTYPE.SOA, ttl=TTL, rdata=soa)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, responder: DnsResponder) -> None:
        self._responder = responder
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # asyncio's own class does not say so

    def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
        transport = self._transport

        def send(answer: bytes) -> None:
            if transport is not None and not transport.is_closing():
                with suppress(OSError):
                    transport.sendto(answer, source)

        self._responder.on_datagram(data, source, send)
