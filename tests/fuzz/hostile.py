"""Requests that no client would send: odd paths, methods, headers and parameters, all of them within what HTTP allows, or not."""

from collections.abc import Callable
from random import Random
from urllib.parse import quote_from_bytes

from tests.fuzz.wire import Request
from tests.fuzz.words import NASTY, text

CONTENT_TYPES = (
    *(b"", b"text/plain", b"application/json; charset=latin-1", b"APPLICATION/JSON", b"application/json;;", b"///", b"\xff\xfe"),
    *(b"application/yaml", b"application/vnd.kubernetes.protobuf", b"application/merge-patch+json", b"multipart/form-data"),
    *(b"application/json-patch+json", b"application/apply-patch+yaml", b"application/strategic-merge-patch+json"),
)  # fmt: skip
_METHODS = ("HEAD", "OPTIONS", "TRACE", "PROPFIND", "LINK", "PURGE", "GET", "POST", "PUT", "PATCH", "DELETE")
_STEPS = (
    *(b"..", b".", b"", b"%2e%2e", b"%2f", b"a%2fb", b"%00", b"%ff%fe", b"%", b"%zz", b"%c0%af", b"%25", b";a=b", b"\\", b"*"),
    *(b"a" * 300, b"a" * 40_000, b"%f0%9f%a6%86", b"status", b"log", b"exec", b"proxy", b"scale", b"namespaces", b"-", b"~"),
)  # fmt: skip
_HEADERS = (
    *((b"Accept", b"\xff"), (b"Accept", b"," * 5_000), (b"Accept", b"a/b;" * 3_000), (b"Accept", b"application/json;as=\xe9")),
    *((b"Accept-Encoding", b"gzip;q=x"), (b"Accept-Encoding", b"*"), (b"Content-Encoding", b"gzip"), (b"Range", b"bytes=0-1")),
    *((b"Authorization", b""), (b"Authorization", b"Bearer"), (b"Authorization", b"Bearer \xff")),
    *((b"Authorization", b"Basic YTpi"), (b"X", b"\x01"), (b"Forwarded", b"for=\"")),
    *((b"Authorization", b"Bearer " + b"a" * 20_000), (b"Authorization", b"Bearer a b"), (b"X-Long", b"a" * 50_000)),
    *((b"Impersonate-User", b"a"), (b"Impersonate-User", b"\xff"), (b"Impersonate-Group", b"system:masters")),
    *((b"Impersonate-User", b"system:serviceaccount:a"), (b"Impersonate-User", b"system:serviceaccount:a:b:c")),
    *((b"Impersonate-Extra-%", b"a"), (b"Impersonate-Extra-a%00b", b"a"), (b"Impersonate-Uid", b"a")),
    *((b"If-None-Match", b"*"), (b"If-None-Match", b'W/"'), (b"Expect", b"100-continue"), (b"Cookie", b"=;=")),
    *((b"Upgrade", b"websocket"), (b"Upgrade", b"SPDY/3.1"), (b"Upgrade", b"h2c"), (b"Connection", b"upgrade, close")),
    *((b"Sec-WebSocket-Protocol", b"base64url.bearer.authorization.k8s.io.\xff"), (b"X-HTTP-Method-Override", b"DELETE")),
    *((b"Sec-WebSocket-Protocol", b"base64url.bearer.authorization.k8s.io.QQ"), (b"Sec-WebSocket-Key", b"x")),
    *((b"Content-Length", b"0"), (b"Content-Length", b"99999999999999999999"), (b"Content-Length", b"-1")),
    *((b"Transfer-Encoding", b"gzip"), (b"Transfer-Encoding", b"chunked, chunked"), (b"Host", b"other"), (b"Host", b"")),
    *((b"X\x00", b"a"), (b"X Y", b"a"), (b"X", b"a\x00b"), (b"X", b"a\rb"), (b"", b"")),
)  # fmt: skip


def request(rng: Random, path: str, token: str) -> Request:
    """One of them, near a path that means something."""
    make = rng.choice(_MAKERS)
    made = make(rng, path.encode(), ((b"Authorization", f"Bearer {token}".encode()),))
    if made.method != "DELETE":
        return made
    return made._replace(body=FOR_SHOW, chunks=())  # it might hit something large


FOR_SHOW = b'{"dryRun":["All"]}'


Headers = tuple[tuple[bytes, bytes], ...]


def _path(rng: Random, path: bytes, headers: Headers) -> Request:
    steps = path.split(b"/")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(1, len(steps) + 1)
        steps[at : at + rng.randrange(2)] = [rng.choice(_STEPS)]
    return Request(rng.choice(("GET", "DELETE", "PUT", "POST")), b"/".join(steps) or b"/", headers, b"{}")


def _method(rng: Random, path: bytes, headers: Headers) -> Request:
    return Request(rng.choice(_METHODS), path, headers, rng.choice((b"", b"{}", b"null")))


def _header(rng: Random, path: bytes, headers: Headers) -> Request:
    added = tuple(rng.choice(_HEADERS) for _ in range(rng.choice((1, 1, 2, 3))))
    return Request(rng.choice(("GET", "HEAD", "DELETE")), path, headers + added)


def _many_headers(rng: Random, path: bytes, headers: Headers) -> Request:
    return Request("GET", path, headers + tuple((b"X-%d" % n, b"a") for n in range(rng.choice((99, 500, 3_000)))))


def _query(rng: Random, path: bytes, headers: Headers) -> Request:
    name = rng.choice((b"labelSelector", b"fieldSelector", b"continue", b"limit", b"dryRun", b"resourceVersionMatch"))
    value = quote_from_bytes(text(rng).encode("utf-8", "surrogatepass")).encode()
    query = rng.choice(
        (
            b"&".join(b"a%d=b" % n for n in range(5_000)),
            b"&".join([b"dryRun=All"] * 3_000),
            name + b"=" + value * rng.choice((1, 50, 500)),
            name + b"=" + b",".join([b"a"] * 10_000),
            name + b"=" + b"(" * 5_000,
            name + b"=%ff%zz%",
            name + b"&&&==&" + name + b"=" + value,
            b"?" * 500,
            b"\xff\xfe",
            b"pretty=true&" + name + b"=" + rng.choice(NASTY).encode("utf-8", "surrogatepass").hex().encode(),
        )
    )
    return Request("GET", path + b"?" + query[:60_000], headers)


def _chunks(rng: Random, path: bytes, headers: Headers) -> Request:
    body = rng.choice((b'{"a":1}', b"\x00" * 5_000, b"[" * 3_000, b"k8s\0" + b"\xff" * 100))
    pieces = tuple(body[at : at + 7] for at in range(0, len(body), 7))
    kind = (b"Content-Type", rng.choice(CONTENT_TYPES))
    return Request(rng.choice(("POST", "PUT", "PATCH", "DELETE")), path, (*headers, kind), chunks=pieces)


def _large(rng: Random, path: bytes, headers: Headers) -> Request:
    """Well-formed, and too much of something."""
    body = rng.choice(
        (
            b'{"metadata":{"annotations":{"a":"%b"}}}' % (b"b" * 400_000),
            b'{"metadata":{"finalizers":[%b]}}' % b",".join([b'""'] * 90_000),
            b'{"metadata":{"labels":{%b}}}' % b",".join(b'"a%d":"b"' % n for n in range(20_000)),
            b'{"metadata":{"name":"%b"}}' % (b"a" * 1_000_000),
            b'{"spec":%b1%b}' % (b'{"a":' * 98, b"}" * 98),
        )
    )
    kind = (b"Content-Type", rng.choice((CONTENT_TYPES[3], b"application/json", *CONTENT_TYPES[-3:])))
    return Request(rng.choice(("POST", "PUT", "PATCH")), path, (*headers, kind), body)


_MAKERS: tuple[Callable[[Random, bytes, Headers], Request], ...] = (
    *(_path, _path, _path, _method, _header, _header, _header, _many_headers, _query, _query, _chunks, _large),
)
