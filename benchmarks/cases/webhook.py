"""What an admission webhook costs a large Job: Jobs with and without one that answers every pod in 2 ms, in turns.

The webhook is an HTTPS server in this process, so what it takes of the machine counts against the Jobs that it is asked about.
"""

import asyncio
import base64
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, Completions, completions, job
from benchmarks.load import scaled
from benchmarks.wire import Connection

COUNT, NODES, ROUNDS = 2_000, 20, 5
SECONDS = 0.002
SLOWER = 20  # percent that a Job may lose
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_LENGTH = re.compile(rb"Content-Length: (\d+)")
_UID = re.compile(rb'"uid":"([^"]+)"')  # the first one is the request's


@dataclass
class _Side:
    """Jobs with the webhook, or those without: pods a second, and CPU seconds of all processes, of each Job."""

    rate: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    sides = {False: _Side(), True: _Side()}
    async with (
        checkout.up(nodes=NODES) as cluster,
        _webhook(cluster) as configuration,
        completions(cluster.client) as completed,
        cluster.client.connection() as connection,
    ):
        await _measure(cluster, connection, completed, _Side(), "warm", count)
        for number in range(ROUNDS):
            for is_called in (False, True) if number % 2 else (True, False):
                if is_called:
                    await connection.post(CONFIGURATIONS, configuration)
                name = f"job-{number}-{'called' if is_called else 'alone'}"
                await _measure(cluster, connection, completed, sides[is_called], name, count)
                if is_called:
                    await connection.request("DELETE", f"{CONFIGURATIONS}/bench")
    return _figures(sides[True], sides[False])


async def _measure(
    cluster: Cluster, connection: Connection, completed: Completions, side: _Side, name: str, count: int
) -> None:
    """From the POST of a Job to its end."""
    there, before, began = len(completed.at), cluster.cpu(), time.time_ns()
    await connection.post(JOBS, job(name, completionMode="Indexed", completions=count, parallelism=count))
    await completed.reach(there + 1)
    side.rate.append(count / ((completed.at[name] - began) / 1e9))
    side.cpu.append(sum((await cluster.spent_since(before)).values()))


def _figures(called: _Side, alone: _Side) -> list[Figure]:
    """How much slower a Job is, and how much more CPU it takes, each as the median of neighbouring rounds."""
    slower = median(1 - mine / theirs for mine, theirs in zip(called.rate, alone.rate, strict=True))
    dearer = median(mine / theirs - 1 for mine, theirs in zip(called.cpu, alone.cpu, strict=True))
    rates = f"{median(called.rate):.0f} of {median(alone.rate):.0f} pods/s"
    spent = f"{median(called.cpu):.2f} of {median(alone.cpu):.2f} s"
    return [
        Figure(name="slower with a webhook", value=slower * 100, unit="%", target=SLOWER, note=rates),
        Figure(name="more CPU with a webhook", value=dearer * 100, unit="%", note=spent),
    ]


@asynccontextmanager
async def _webhook(cluster: Cluster) -> AsyncIterator[dict[str, Any]]:
    """A webhook that admits everything, and the configuration that names it."""
    tls = cluster.folder / "tls"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls / "server.pem")
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, ssl=context)
    webhook = {
        "name": "bench.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/",
            "caBundle": base64.b64encode((tls / "ca.crt").read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    try:
        yield {"metadata": {"name": "bench"}, "webhooks": [webhook]}
    finally:
        server.close()


class _Answering(asyncio.Protocol):
    """Answers each request on a connection after `SECONDS`; one comes after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._came = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, _, body = self._came.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length and len(body) >= int(length[1]):
            found = _UID.search(body)
            self._came = b""
            asyncio.get_running_loop().call_later(SECONDS, self._answer, found[1] if found else b"")

    def _answer(self, uid: bytes) -> None:
        response = b'{"uid":"%b","allowed":true}' % uid
        body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":%b}' % response
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


CASE = Case(
    name="webhook",
    about="Indexed Jobs of 2,000 pods on 20 simulated nodes, with and without a webhook of 2 ms, in turns",
    run=run,
)
