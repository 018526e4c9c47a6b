"""Routes, links and addresses by netlink (rtnetlink(7)), in the few forms that the agent needs. Called by the oci runtime's
network and by `routes`.

A message costs some 20 us. A library for all of netlink takes 0.3 s to import, programs such as `ip` milliseconds a call.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple, Self

_NEWLINK, _SETLINK, _NEWADDR, _DELADDR, _GETADDR, _NEWROUTE, _DELROUTE, _GETROUTE = 16, 19, 20, 21, 22, 24, 25, 26
_REQUEST, _ACK, _DUMP, _REPLACE, _EXCL, _CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
_ERROR, _DONE = 2, 3
_LINK_ADDRESS, _IFNAME, _LINKINFO, _NET_NS_FD = 1, 3, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_LABEL = 1, 2, 3
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC = 1, 4, 5, 7
_NESTED, _UP, _ONLINK, _SCOPE_LINK = 0x8000, 1, 4, 253
_MAIN, _UNICAST, _UNREACHABLE, _STATIC = 254, 1, 7, 4
_HEADER, _LINK, _ADDRESS, _ROUTE = (
    struct.Struct("=IHHII"),
    struct.Struct("=BxHiII"),
    struct.Struct("=BBBBI"),
    struct.Struct("=BBBBBBBBI"),
)
_PIECE = 1 << 17
LOOPBACK = 1  # the index of `lo`, in every network namespace


class Route(NamedTuple):
    network: IPv4Network
    protocol: int


class Netlink:
    """A socket to the kernel, for the network namespace of the thread that makes it. All methods raise OSError."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def make_veth(self, name: str, peer: str, namespace: int, hardware: bytes) -> None:
        """A pair of links: `name` here, up; `peer` in the namespace, a descriptor. EEXIST if there is a link of this name."""
        far = _link() + _name(peer) + _number(_NET_NS_FD, namespace) + _attribute(_LINK_ADDRESS, hardware)
        data = _attribute(_INFO_DATA | _NESTED, _attribute(_VETH_PEER | _NESTED, far))
        info = _attribute(_LINKINFO | _NESTED, _attribute(_INFO_KIND, b"veth") + data)
        self._ask(_NEWLINK, _CREATE | _EXCL, _link(up=True) + _name(name) + info)

    def set_up(self, index: int) -> None:
        self._ask(_SETLINK, 0, _link(index, up=True))

    def add_address(self, index: int, address: IPv4Address, label: str) -> None:
        """Of this machine alone, not of a network. Fine if the link has it. `label`: begins with the link's name."""
        self._ask(
            _NEWADDR, _CREATE | _REPLACE, _address(index, address) + _attribute(_IFA_LABEL, label.encode() + b"\0")
        )

    def remove_address(self, index: int, address: IPv4Address) -> None:
        self._ask(_DELADDR, 0, _address(index, address))

    def addresses(self, label: str) -> list[IPv4Address]:
        """Those that have the label."""
        found = (
            _attributes(body[_ADDRESS.size :])
            for body in self._dump(_GETADDR, _ADDRESS.pack(socket.AF_INET, 0, 0, 0, 0))
        )
        return [IPv4Address(each[_IFA_LOCAL]) for each in found if each.get(_IFA_LABEL) == label.encode() + b"\0"]

    def set_route(self, network: IPv4Network, gateway: IPv4Address, protocol: int = _STATIC, *, link: int = 0) -> None:
        """Whatever route there was. `link`: at which the gateway is, although no network of the link has it."""
        body = _route(network, protocol, flags=_ONLINK if link else 0) + _attribute(_RTA_GATEWAY, gateway.packed)
        self._ask(_NEWROUTE, _CREATE | _REPLACE, body + (_number(_RTA_OIF, link) if link else b""))

    def set_neighbour_route(self, address: IPv4Address, link: int, source: IPv4Address) -> None:
        """To what is at the other end of a link. `source`: the address that this machine has there."""
        body = _route(IPv4Network(address), _STATIC, scope=_SCOPE_LINK) + _number(_RTA_OIF, link)
        self._ask(_NEWROUTE, _CREATE | _REPLACE, body + _attribute(_RTA_PREFSRC, source.packed))

    def refuse(self, network: IPv4Network) -> None:
        """Whoever calls an address to which no other route leads hears at once that there is none."""
        self._ask(_NEWROUTE, _CREATE | _REPLACE, _route(network, _STATIC, kind=_UNREACHABLE))

    def remove_refusal(self, network: IPv4Network) -> None:
        """ESRCH if there is none."""
        self._ask(_DELROUTE, 0, _route(network, _STATIC, kind=_UNREACHABLE))

    def remove_route(self, network: IPv4Network, protocol: int) -> None:
        self._ask(_DELROUTE, 0, _route(network, protocol))

    def routes(self) -> list[Route]:
        """Those of IPv4 in the main table, without the default ones."""
        found = []
        for body in self._dump(_GETROUTE, _ROUTE.pack(socket.AF_INET, *[0] * 8)):
            _, length, _, _, table, protocol, *_ = _ROUTE.unpack_from(body)
            target = _attributes(body[_ROUTE.size :]).get(_RTA_DST, b"")
            if table == _MAIN and len(target) == 4:
                found.append(Route(IPv4Network((target, length)), protocol))
        return found

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        for _ in self._exchange(kind, flags | _ACK, body):
            pass

    def _dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        return self._exchange(kind, _DUMP, body)

    def _exchange(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """Yield the bodies of the answers, to the last one."""
        self._number += 1
        header = _HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST, self._number, 0)
        self._socket.sendto(header + body, (0, 0))
        while True:
            data = memoryview(self._socket.recv(_PIECE))
            while len(data) >= _HEADER.size:
                size, kind, _, number, _ = _HEADER.unpack_from(data)
                answer, data = bytes(data[_HEADER.size : size]), data[-(-size // 4) * 4 :]
                if number != self._number:
                    continue
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    (code,) = struct.unpack_from("=i", answer)
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    return
                yield answer


def link_index(name: str) -> int:
    """Of a link of the thread's network namespace. Raises OSError if there is none."""
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name) from error


def _link(index: int = 0, *, up: bool = False) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, index, *((_UP, _UP) if up else (0, 0)))


def _address(index: int, address: IPv4Address) -> bytes:
    parts = (_attribute(kind, address.packed) for kind in (_IFA_LOCAL, _IFA_ADDRESS))
    return _ADDRESS.pack(socket.AF_INET, address.max_prefixlen, 0, 0, index) + b"".join(parts)


def _route(network: IPv4Network, protocol: int, *, kind: int = _UNICAST, scope: int = 0, flags: int = 0) -> bytes:
    body = _ROUTE.pack(socket.AF_INET, network.prefixlen, 0, 0, _MAIN, protocol, scope, kind, flags)
    return body + (_attribute(_RTA_DST, network.network_address.packed) if network.prefixlen else b"")


def _name(name: str) -> bytes:
    return _attribute(_IFNAME, name.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        found[kind & 0x3FFF] = data[4:size]
        data = data[max(4, -(-size // 4) * 4) :]
    return found
