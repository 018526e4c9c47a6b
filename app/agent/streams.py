"""Calls to this agent's pods: exec, attach and port-forward over WebSockets, for which the agent dials out. Run by `agent`.

One request stays open, on which the API sends a notice for each call. For each the agent opens a WebSocket (messages:
`app.client.protocol`), which lasts as long as the command or connection. What is read from one side waits for the other. When the
API hangs up, what was executed is killed, and what was attached to goes on. A call whose notice is repeated is answered once.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from app.agent.clock import Clock
from app.client.api import Api
from app.client.protocol import (
    CONTROL,
    END,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    CallNotice,
    CallReply,
    CallRequest,
    calls_path,
    node_segment,
)
from app.client.watch import lines
from app.machinery.errors import ApiError
from app.runtimes.base import ContainerKey, ContainerStatus, Pipe, Runtime, Session, StartError, Unsupported
from app.structured_logging import Logger

if TYPE_CHECKING:
    from app.client.websocket import Socket

SILENT_SECONDS = 60.0  # without even an empty line, after which the stream is taken for dead
PING_SECONDS = 10.0  # writing is how the death of the other end is noticed while nothing is read from it
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
TRIES = 6  # to reach the process of the API that waits: another may be asked each time, and may not know of it yet
MOST = 256  # calls at a time
PIECE = 32 * 1024

logger = Logger(__name__)


class _CallRefusedError(Exception):
    """What a kubelet would answer instead of opening a stream."""


class _OpenCall(NamedTuple):
    """A call that has been answered, up to the first word."""

    socket: "Socket"
    wanted: CallRequest

    async def reply(self, word: CallReply) -> None:
        await self.socket.send(bytes((CONTROL,)) + msgspec.json.encode(word) + b"\n")

    async def end(self, channel: int) -> None:
        await self.socket.send(bytes((END, channel)))

    async def send(self, channel: int, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            await self.socket.send(bytes((channel,)) + data[start : start + PIECE])


class CallHandler:
    """All calls of the agent. `node_of` gives the node of a pod that is looked after, or nothing."""

    def __init__(
        self, api: Api, runtime: Runtime, names: Sequence[str], node_of: Callable[[str], str], clock: Clock
    ) -> None:
        self._api, self._runtime, self._names, self._node_of, self._clock = api, runtime, set(names), node_of, clock
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._over: deque[str] = deque(maxlen=1000)  # for which a ring may still be on its way

    async def run(self) -> None:
        """Listens for ever; calls that are under way outlast the stream in which they were rung."""
        node = node_segment(self._names)
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    async with self._api.stream(calls_path(node)) as chunks:
                        async for line in lines(_while_alive_chunks(chunks)):
                            pause = FIRST_PAUSE
                            self._on_notice(msgspec.json.decode(line, type=CallNotice))
                except (ApiError, OSError, msgspec.MsgspecError) as error:
                    logger.info("cannot listen for calls; retrying", error=error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            await self._end()

    async def _end(self) -> None:
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)

    def _on_notice(self, ring: CallNotice) -> None:
        if ring.node in self._names and ring.id not in self._calls and ring.id not in self._over:
            task = self._calls[ring.id] = asyncio.create_task(self._answer(ring))
            task.add_done_callback(lambda _: self._calls.pop(ring.id))

    async def _answer(self, ring: CallNotice) -> None:
        try:
            socket = await self._dial(calls_path(ring.node, ring.id))
            if socket is None:
                return
            self._over.append(ring.id)
            try:
                await _while_alive(socket, self._answer_and_finish(socket, ring.node))
            finally:
                socket.close()
        except ConnectionError as error:
            logger.info("call ended early", node=ring.node, call=ring.id, error=error)
        except Exception as error:
            logger.error("unexpected error in a call", node=ring.node, call=ring.id, traceback_of=error)

    async def _dial(self, path: str) -> "Socket | None":
        pause = FIRST_PAUSE
        for _ in range(TRIES):
            try:
                return await self._api.open_socket(path)
            except (ApiError, OSError) as error:
                logger.info("cannot dial back for a call; retrying", path=path, error=error)
            await self._clock.sleep(pause)
            pause *= 2
        return None

    async def _answer_and_finish(self, socket: "Socket", node: str) -> None:
        await self._answer_call(socket, node)
        await socket.finish()

    async def _answer_call(self, socket: "Socket", node: str) -> None:
        messages = socket.messages()
        first = await anext(messages, b"")
        if not first:
            return
        answer = _OpenCall(socket, msgspec.json.decode(first[1:], type=CallRequest))
        try:
            if len(self._calls) > MOST:
                raise _CallRefusedError(f"this node answers no more than {MOST} calls at a time")
            work = await self._choose_handler(answer, node)
        except _CallRefusedError as error:
            await answer.reply(CallReply(refused=str(error)))
            return
        await answer.reply(CallReply(ready=True))
        await work(answer, messages)

    async def _choose_handler(
        self, answer: _OpenCall, node: str
    ) -> Callable[[_OpenCall, Any], Coroutine[Any, Any, None]]:
        """Return what to do about it. Raises _CallRefusedError."""
        wanted = answer.wanted
        running = await self._list_containers(wanted.uid) if self._node_of(wanted.uid) == node else []
        if wanted.kind == "forward":
            if not any(each.state == "running" for each in running):
                raise _CallRefusedError(f'pod not found ("{wanted.name}_{wanted.namespace}")')
            return self._forward
        return partial(self._serve, _newest(running, wanted))

    async def _list_containers(self, uid: str) -> list[ContainerStatus]:
        """A pod's containers. Raises _CallRefusedError where the runtime cannot answer."""
        try:
            return [each for each in await self._runtime.list() if each.key.pod_uid == uid]
        except Exception as error:
            _log_unforeseen(error)
            raise _CallRefusedError(f"the node's runtime cannot be asked: {_reason(error)}") from error

    async def _serve(self, key: ContainerKey, answer: _OpenCall, messages: Any) -> None:
        """One command, or what was attached to, until it has ended or the API hangs up."""
        wanted = answer.wanted
        try:
            if wanted.kind == "attach":
                session = await self._runtime.attach(key)
            else:
                session = await self._runtime.execute(key, wanted.command, tty=wanted.tty)
        except Exception as error:
            _log_unforeseen(error)
            verb = "attaching to" if wanted.kind == "attach" else "executing command in"
            await answer.reply(CallReply(failed=f"error {verb} container: {_reason(error)}"))
            return
        try:
            await _until_either_ends(_session_in(session, wanted, messages), _session_out(session, answer))
        finally:
            await session.close()

    async def _forward(self, answer: _OpenCall, messages: Any) -> None:
        wanted = answer.wanted
        if not wanted.port:
            return  # it was only asked whether there is such a pod
        try:
            pipe = await self._runtime.dial(wanted.uid, wanted.port)
        except (OSError, Unsupported) as error:
            await answer.reply(
                CallReply(failed=f"failed to connect to localhost:{wanted.port} inside the pod: {_reason(error)}")
            )
            return
        try:
            await _until_either_ends(_pipe_in(pipe, messages), _pipe_out(pipe, answer))
        finally:
            await pipe.close()


async def _session_in(session: Session, wanted: CallRequest, messages: Any) -> None:
    """What the client says, until the API hangs up."""
    try:
        async for message in messages:
            if message[0] == STDIN and wanted.stdin:
                await session.write(message[1:])
            elif message[0] == RESIZE:
                await _resize(session, message[1:])
            elif message == bytes((END, STDIN)):
                await session.end_input()
    finally:
        if wanted.stdin:
            await session.end_input()


async def _resize(session: Session, text: bytes) -> None:
    """The last of the sizes in it; nonsense is passed over, as in Kubernetes."""
    decoder, rest, size = json.JSONDecoder(), text.decode(errors="replace").strip(), None
    try:
        while rest:
            size, end = decoder.raw_decode(rest)
            rest = rest[end:].strip()
        if size:
            await session.resize(int(size["Width"]), int(size["Height"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        logger.info("ignoring a malformed terminal size")


async def _session_out(session: Session, answer: _OpenCall) -> None:
    """What the container says, and how it ended."""
    wanted = answer.wanted
    channels = {"stdout": STDOUT if wanted.stdout else None, "stderr": STDERR if wanted.stderr else None}
    async for stream, data in session.output():
        channel = channels[stream]
        if channel is not None:
            await answer.send(channel, data)
    code = 0 if wanted.kind == "attach" else await session.exit_code()
    for channel in (STDOUT, STDERR):
        await answer.end(channel)
    await answer.reply(CallReply(exit_code=code))


async def _pipe_in(pipe: Pipe, messages: Any) -> None:
    async for message in messages:
        if message[0] == STDIN:
            await pipe.write(message[1:])
        elif message == bytes((END, STDIN)):
            await pipe.end()


async def _pipe_out(pipe: Pipe, answer: _OpenCall) -> None:
    while data := await pipe.read():
        await answer.send(STDOUT, data)
    await answer.end(STDOUT)
    await answer.reply(CallReply(exit_code=0))


async def _until_either_ends(hearing: Coroutine[Any, Any, None], talking: Coroutine[Any, Any, None]) -> None:
    """Until the API hangs up or there is nothing more to say to it. Input that breaks does not end the output."""
    tasks = [asyncio.create_task(hearing), asyncio.create_task(talking)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done() and tasks[0].exception() is not None:
            await asyncio.wait(tasks[1:])
        if tasks[1].done():
            tasks[1].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _while_alive(socket: "Socket", work: Coroutine[Any, Any, None]) -> None:
    """Until the work ends, or writing shows that the other end is dead: while a command does not read, neither do we."""
    working, pinging = asyncio.create_task(work), asyncio.create_task(_ping(socket))
    try:
        await asyncio.wait((working, pinging), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, pinging):
            task.cancel()
        await asyncio.gather(working, pinging, return_exceptions=True)


async def _ping(socket: "Socket") -> None:
    while True:
        await asyncio.sleep(PING_SECONDS)
        await socket.ping()


async def _while_alive_chunks(chunks: Any) -> Any:
    """The chunks, as long as they keep coming."""
    while True:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise ConnectionError(f"no data for {SILENT_SECONDS:.0f} seconds") from None
        if chunk is None:
            return
        yield chunk


def _newest(known: Sequence[ContainerStatus], wanted: CallRequest) -> ContainerKey:
    """The container's newest run, which must be running. Raises _CallRefusedError."""
    runs = [each for each in known if each.key.name == wanted.container]
    newest = max(runs, key=lambda each: each.key.attempt, default=None)
    if newest is None or newest.state != "running":
        where = f'container not found ("{wanted.container}")'
        if wanted.kind == "attach":
            where = f"container {wanted.container} not found in pod {wanted.name}_{wanted.namespace}"
        raise _CallRefusedError(where)
    return newest.key


def _log_unforeseen(error: Exception) -> None:
    if not isinstance(error, StartError | Unsupported | OSError):
        logger.error("unexpected error in what a call asks for", traceback_of=error)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
