"""Container checks by command, HTTP, TCP or gRPC. Called by probes and lifecycle hooks.

Nothing is raised: what cannot be asked is an answer, too. Answers are worded as the kubelet words them.
"""

import asyncio
import errno
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

import httpx

from app.agent.clock import Clock
from app.kinds.pod.container import Container
from app.kinds.pod.probe import GRPCAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction
from app.machinery.base import IntOrString
from app.runtimes.base import ContainerKey, Runtime, Session, StartError, Unsupported

# As Go programs word it, which people search the net for.
_DIAL_ERRORS = {
    errno.ECONNREFUSED: "connect: connection refused",
    errno.EHOSTUNREACH: "connect: no route to host",
    errno.ENETUNREACH: "connect: network is unreachable",
    errno.ETIMEDOUT: "connect: connection timed out",
    errno.ECONNRESET: "read: connection reset by peer",
}


def dial_error(error: BaseException, host: str, port: int) -> str:
    """Reason for which a connection failed, by the operating system's error behind what a library made of it."""
    cause: BaseException | None = error
    seen = 0
    while cause is not None and seen < 10:
        if isinstance(cause, OSError) and cause.errno in _DIAL_ERRORS:
            return f"dial tcp {host}:{port}: {_DIAL_ERRORS[cause.errno]}"
        cause = cause.__cause__ or cause.__context__
        seen += 1
    if "connection attempts failed" in str(error):
        return f"dial tcp {host}:{port}: connect: connection refused"
    return str(error) or "EOF"


MOST_OUTPUT = 10 * 1024
MOST_REDIRECTS = 10


class CheckTarget(NamedTuple):
    """Whom to ask. `ip`: of the pod, as the agent sees it."""

    key: ContainerKey
    container: Container
    ip: str


class CheckResult(NamedTuple):
    """`ok` is None if the outcome is unknown. A `warning` is an event, but does not count against the container."""

    ok: bool | None
    output: str = ""
    warning: str = ""


class _NoPort(Exception):
    pass


class Checks:
    """One for an agent."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock
        self._http: httpx.AsyncClient | None = None

    async def probe(self, probe: Probe, target: CheckTarget, patience: timedelta) -> CheckResult:
        try:
            if probe.exec is not None:
                return await self._execute(probe.exec.command, target, patience)
            if probe.http_get is not None:
                return await self._get(probe.http_get, target, patience, "kube-probe/1.33")
            if probe.tcp_socket is not None:
                return await _connect(probe.tcp_socket, target, patience)
            if probe.grpc is not None:
                return await _health(probe.grpc, target, patience)
        except (_NoPort, ValueError) as error:
            return CheckResult(None, str(error))
        return CheckResult(None, f"missing probe handler for {target.container.name}")

    async def hook(self, handler: LifecycleHandler, target: CheckTarget) -> CheckResult:
        """Without a time limit: that is the caller's. Of an HTTP server any answer will do."""
        try:
            if handler.exec is not None:
                return await self._execute(handler.exec.command, target, None)
            if handler.http_get is not None:
                answer = await self._get(handler.http_get, target, None, "kube-lifecycle/1.33")
                return CheckResult(True) if answer.output.startswith("HTTP ") else answer
            if handler.sleep is not None:
                await self._clock.sleep(handler.sleep.seconds)
                return CheckResult(True)
        except (_NoPort, ValueError) as error:
            return CheckResult(False, str(error))
        return CheckResult(False, "invalid handler: it must say exec, httpGet or sleep")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    # By a command

    async def _execute(self, command: Sequence[str], target: CheckTarget, patience: timedelta | None) -> CheckResult:
        session: Session | None = None
        try:
            async with asyncio.timeout(patience.total_seconds() if patience else None):
                session = await self._runtime.execute(target.key, command)
                output, code = await _read_session(session)
        except TimeoutError:
            within = f"{int(patience.total_seconds())}s" if patience else "its time"
            return CheckResult(False, f'command timed out: "{" ".join(command)}" timed out after {within}')
        except (StartError, Unsupported, OSError) as error:
            return CheckResult(None, str(error))
        finally:
            if session is not None:
                await session.close()
        return CheckResult(code == 0, output)

    # By HTTP

    async def _get(
        self, action: HTTPGetAction, target: CheckTarget, patience: timedelta | None, agent: str
    ) -> CheckResult:
        url = _url(action, target)
        headers = {"User-Agent": agent, "Accept": "*/*", "Connection": "close"}
        headers |= {each.name: each.value for each in action.http_headers}
        try:
            async with asyncio.timeout(patience.total_seconds() if patience else None):
                return await self._get_following_redirects(httpx.URL(url), headers)
        except TimeoutError:
            why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        except httpx.InvalidURL as error:
            return CheckResult(None, f'parse "{url}": {error}')
        except (httpx.TransportError, OSError) as error:
            why = dial_error(error, *_address(url))
        return CheckResult(False, f'Get "{url}": {why}')

    async def _get_following_redirects(self, url: httpx.URL, headers: dict[str, str]) -> CheckResult:
        """Redirects are followed on the same host; one to elsewhere is taken for an answer."""
        if self._http is None:
            self._http = _client()
        host = url.host
        for _ in range(MOST_REDIRECTS):
            async with self._http.stream("GET", url, headers=headers) as response:
                after = response.next_request.url if response.next_request else None
                if after is not None and after.host == host:
                    url = after
                    continue
                if after is not None:
                    return CheckResult(True, warning=f"Probe terminated redirects, Response body: {after}")
                if 200 <= response.status_code < 400:
                    return CheckResult(True)
                return CheckResult(False, f"HTTP probe failed with statuscode: {response.status_code}")
        return CheckResult(False, f'Get "{url}": stopped after {MOST_REDIRECTS} redirects')


async def _read_session(session: Session) -> tuple[str, int]:
    output = b""
    async for _, data in session.output():
        output = (output + data)[:MOST_OUTPUT]
    return output.decode(errors="replace"), await session.exit_code()


def _client() -> httpx.AsyncClient:
    """One connection a question; a certificate proves nothing here, and is not looked at."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    return httpx.AsyncClient(
        verify=anyone, trust_env=False, timeout=httpx.Timeout(None), limits=httpx.Limits(max_keepalive_connections=0)
    )


def _url(action: HTTPGetAction, target: CheckTarget) -> str:
    host, port = action.host or target.ip, _port(action.port, target.container)
    path = action.path or "/"
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{(action.scheme or 'HTTP').lower()}://{authority}{'' if path.startswith('/') else '/'}{path}"


def _address(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    return parsed.host, parsed.port or (443 if parsed.scheme == "https" else 80)


def _port(port: IntOrString | None, container: Container) -> int:
    """A number, or the name of one of the container's ports."""
    if isinstance(port, str) and not port.isdigit():
        for each in container.ports:
            if each.name == port:
                return each.container_port
        raise _NoPort(f"couldn't find port: {port} in container {container.name}")
    number = int(port or 0)
    if not 0 < number < 65536:
        raise _NoPort(f"invalid port number: {number}")
    return number


# By a connection


async def _connect(action: TCPSocketAction, target: CheckTarget, patience: timedelta) -> CheckResult:
    host, port = action.host or target.ip, _port(action.port, target.container)
    try:
        async with asyncio.timeout(patience.total_seconds()):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return CheckResult(False, f"dial tcp {host}:{port}: i/o timeout")
    except OSError as error:
        return CheckResult(False, dial_error(error, host, port))
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return CheckResult(True)


# By gRPC


async def _health(action: GRPCAction, target: CheckTarget, patience: timedelta) -> CheckResult:
    try:
        from app.agent.pods.grpc_health import ask  # not every agent has the library, nor needs its weight
    except ImportError:
        return CheckResult(None, "this node's agent cannot speak gRPC: install jobplane[cri] there")
    return CheckResult(*await ask(f"{target.ip}:{action.port}", action.service, patience.total_seconds()))
