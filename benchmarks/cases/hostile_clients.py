"""What a well-behaved client notices of 200 hostile ones (`benchmarks.hostile`), which hold another service account's token.

Both are service accounts, of one priority level, so no lane of its own helps the good one. Simulated nodes renew their leases.

The hostile process runs nice 10: its half of a TLS handshake costs twice as much CPU as the API's, which elsewhere
it would not take from the API's machine. On a machine that is busy otherwise it therefore attacks less: read the
figure of the API's CPU with the others.
"""

import asyncio
import sys
import time
from typing import Any

import msgspec

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, percentile
from benchmarks.load import post_all, scaled
from benchmarks.wire import Client, Connection

SECONDS, NODES, OBJECTS = 60, 20, 2_000
PAUSE = 0.02  # between two requests of the good client
GOOD = "/api/v1/namespaces/good/configmaps"


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    seconds = scaled(SECONDS, scale)
    async with checkout.up(nodes=NODES) as cluster, cluster.client.connection() as admin:
        good, hostile = [await account(admin, each) for each in ("good", "hostile")]
        await _fill(cluster)
        await admin.post(GOOD, {"metadata": {"name": "read"}, "data": {"key": "value"}})
        processes.forget_peak(cluster.pid_of("api"))
        client = Client(cluster.port, good, cluster.client.trust)
        async with client.connection() as connection:
            alone = await _get_for(connection, min(seconds, 5))
            before = cluster.cpu()["api"]
            attack = await _attack(cluster, hostile, seconds)
            took = await _get_for(connection, seconds)
            outcomes = (await attack.communicate())[0].decode().strip()
        async with cluster.client.connection() as fresh:  # the first was idle for a minute
            lost = await _nodes_lost(fresh)
        api = cluster.pid_of("api")
        peak, busy = processes.peak(api), cluster.cpu()["api"] - before
    return [
        Figure(name="GET, p50", value=percentile(took, 50), unit="ms", note=f"alone {percentile(alone, 50):.1f} ms"),
        Figure(name="GET, p99", value=percentile(took, 99), unit="ms", target=250, note=f"{len(took)} requests"),
        Figure(name="API, peak memory", value=peak / 2**20, unit="MiB", target=1024, note=outcomes),
        Figure(name="API, CPU", value=busy, unit="s", note=f"within {seconds} s"),
        Figure(name="nodes lost", value=lost, unit="nodes", target=0),
    ]


async def account(admin: Connection, name: str) -> str:
    """Make a namespace, and a service account that may do all in it; return its token."""
    await admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    await admin.post(accounts, {"metadata": {"name": "client"}})
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
    subject = {"kind": "ServiceAccount", "name": "client", "namespace": name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    await admin.post(bindings, {"metadata": {"name": "client"}, "subjects": [subject], "roleRef": role})
    body: dict[str, Any] = {"spec": {"expirationSeconds": 3600}}
    answer = msgspec.json.decode(await admin.post(f"{accounts}/client/token", body))
    return str(answer["status"]["token"])


async def _fill(cluster: Cluster) -> None:
    """Objects for the hostile lists: 2 MB."""
    bodies = ({"metadata": {"name": f"c-{number}"}, "data": {"key": "v" * 800}} for number in range(OBJECTS))
    async with cluster.client.connections(8) as connections:
        await post_all(connections, "/api/v1/namespaces/hostile/configmaps", bodies)


async def _attack(cluster: Cluster, token: str, seconds: int) -> asyncio.subprocess.Process:
    child = await asyncio.create_subprocess_exec(
        "nice",
        sys.executable,
        "-m",
        "benchmarks.hostile",
        str(cluster.port),
        str(cluster.folder / "tls" / "ca.crt"),
        str(seconds),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("no pipes")
    child.stdin.write(f"{token}\n".encode())
    await child.stdout.readline()
    return child


async def _get_for(connection: Connection, seconds: float) -> list[float]:
    """GET every 20 ms; the milliseconds that each took."""
    ends, took = time.monotonic() + seconds, []
    while (began := time.monotonic()) < ends:
        await connection.get(f"{GOOD}/read")
        took.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(PAUSE)
    return took


async def _nodes_lost(admin: Connection) -> int:
    """Count the nodes that were ever taken for lost: the condition tells when it last changed to what it is."""
    events = await admin.read("/api/v1/events?fieldSelector=reason=NodeNotReady")
    return len(events["items"])


CASE = Case(
    name="hostile-clients",
    about=f"GET of one object every 20 ms beside 200 hostile clients with 10,000 watches, {NODES} nodes, a minute",
    run=run,
)
