"""Names of Services and pods: what a name of the cluster's domain asks for, and which records answer it. Pure.

By Kubernetes' specification of DNS-based service discovery, version 1.1.0, with one difference: no Service has an address of its
own, so each resolves to the addresses of its ready pods, as a headless one does. Called by `dns_responder`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from app.client.protocol import ServiceEndpoint, ServiceRecords, ServiceSlice
from app.machinery import name_validation

DOMAIN = "cluster.local"
API = ("default", "kubernetes")
MOST = 1000  # addresses in one answer, which must fit into 64 KiB
LONGEST = 63

RecordType = Literal["A", "AAAA", "CNAME", "PTR", "SRV"]


class Asked(NamedTuple):
    """A Service, one of its endpoints, or one of its ports."""

    namespace: str
    service: str
    endpoint: str = ""
    port: str = ""
    protocol: str = ""


class Record(NamedTuple):
    """`data` is an address, a name, or of SRV a port and a name, `8080 NAME`."""

    name: str
    type: RecordType
    data: str


class Records(NamedTuple):
    """All records of a name, of any type, and those that go with them. Without any, there is no such name."""

    answers: Sequence[Record] = ()
    additional: Sequence[Record] = ()


NOTHING = Records()


def is_inside(name: str) -> bool:
    """Return whether the name, in lower case, is of the cluster's domain."""
    return name == DOMAIN or name.endswith(f".{DOMAIN}")


def parse(name: str) -> Asked | None:
    """Return what a name of the cluster's domain asks for; None if nothing can have it."""
    *rest, kind = name.removesuffix(DOMAIN).removesuffix(".").split(".")
    if kind != "svc" or not 2 <= len(rest) <= 4:
        return None
    *what, service, namespace = rest
    if any(len(each) > LONGEST or name_validation.dns_label(each) for each in (service, namespace)):
        return None
    match what:
        case []:
            return Asked(namespace, service)
        case [endpoint] if not endpoint.startswith("_"):
            return Asked(namespace, service, endpoint)
        case [port, protocol] if port.startswith("_") and protocol.startswith("_"):
            return Asked(namespace, service, port=port[1:], protocol=protocol[1:])
    return None


def answer(asked: Asked, found: ServiceRecords) -> Records:
    """Return the records of what was asked for."""
    whole = f"{asked.service}.{asked.namespace}.svc.{DOMAIN}"
    if found.external_name:
        name = found.external_name.rstrip(".").lower()
        return (
            Records([Record(whole, "CNAME", name)])
            if asked == (asked.namespace, asked.service, "", "", "")
            else NOTHING
        )
    if asked.port:
        return _ports(asked, whole, found.slices)
    if asked.endpoint:
        chosen = [each for each in _endpoints(found.slices) if asked.endpoint in _labels(each)]
        chosen = chosen or [each for each in found.recent if asked.endpoint == each.hostname]
        return Records(list(_addresses(f"{asked.endpoint}.{whole}", chosen)))
    return Records(list(_addresses(whole, _endpoints(found.slices))))


def _endpoints(slices: Iterable[ServiceSlice]) -> Iterator[ServiceEndpoint]:
    return (endpoint for piece in slices for endpoint in piece.endpoints)


def _labels(endpoint: ServiceEndpoint) -> tuple[str, ...]:
    """Return the names of an endpoint below its Service: its host name, and its addresses with dashes."""
    return (endpoint.hostname, *(dashed(each) for each in endpoint.addresses))


def dashed(address: str) -> str:
    """Return an address as a label: Kubernetes leaves the form of names of endpoints without a host name open."""
    return address.replace(".", "-").replace(":", "-")


def _addresses(name: str, endpoints: Iterable[ServiceEndpoint]) -> Iterator[Record]:
    found = dict.fromkeys(address for each in endpoints for address in each.addresses)
    return (Record(name, "AAAA" if ":" in each else "A", each) for each in list(found)[:MOST])


def _ports(asked: Asked, whole: str, slices: Iterable[ServiceSlice]) -> Records:
    answers: dict[Record, None] = {}
    additional: dict[Record, None] = {}
    name = f"_{asked.port}._{asked.protocol}.{whole}"
    for piece in slices:
        for port in piece.ports:
            if (port.name, port.protocol) != (asked.port, asked.protocol):
                continue
            for endpoint in piece.endpoints:
                target = f"{endpoint.hostname or dashed(endpoint.addresses[0])}.{whole}"
                answers[Record(name, "SRV", f"{port.number} {target}")] = None
                additional.update(dict.fromkeys(_addresses(target, [endpoint])))
    return Records(list(answers)[:MOST], list(additional)[:MOST])


def pointer_address(name: str) -> str:
    """Return the IPv4 or IPv6 address that a name under in-addr.arpa or ip6.arpa stands for; empty for any other name."""
    parts = name.split(".")[-3::-1]
    if name.endswith(".in-addr.arpa") and len(parts) == 4 and all(each.isdigit() for each in parts):
        return ".".join(parts)
    if name.endswith(".ip6.arpa") and len(parts) == 32 and all(len(each) == 1 for each in parts):
        groups = ["".join(parts[start : start + 4]) for start in range(0, 32, 4)]
        return ":".join(groups)
    return ""
