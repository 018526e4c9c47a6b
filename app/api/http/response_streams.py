"""Streamed responses as raw ASGI, which end when the client disconnects or stops reading.

Watches and long lists are sent through here. An idle stream never notices by itself that its client has gone.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.types import Receive, Send

from app.api.streams.revocation import Revoked
from app.machinery.errors import ApiError

SEND_SECONDS = 30.0  # in which a client must have taken a sent part
PART_BYTES = 32 << 10  # sent to a client at a time: a TLS connection keeps the memory of its largest part until it ends


class SlowClientError(Exception):
    """The client has stopped reading."""


class Sender:
    """Sends the parts of a body, and records since when one is waiting: a timer for each part would cost more."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._since: float | None = None
        self.is_whole = True  # whether the last call has sent all of its parts

    async def __call__(self, data: bytes, *, more: bool = True) -> None:
        for at in range(0, len(data) or 1, PART_BYTES):
            part = data[at : at + PART_BYTES] if len(data) > PART_BYTES else data
            self._since = _clock()
            is_last = at + PART_BYTES >= len(data)
            await self._send({"type": "http.response.body", "body": part, "more_body": more or not is_last})
            self._since, self.is_whole = None, is_last

    async def drain(self) -> None:
        """Wait until the client has taken all but a little of what was sent."""
        await self(b"")

    @property
    def is_stuck(self) -> bool:
        return self._since is not None and _clock() - self._since >= SEND_SECONDS


async def send_stream(
    work: Callable[[Sender], Coroutine[Any, Any, None]],
    receive: Receive,
    send: Send,
    running: "set[asyncio.Task[None]] | None" = None,
    refused: "Revoked | None" = None,
    last_words: Callable[[ApiError], bytes] | None = None,
) -> None:
    """Send what `work` sends, and the end of the body, while the client is connected. Raises SlowClientError, or what
    the work raises.

    The task is in `running` meanwhile: who stops the server cancels it, which is an end like any other. So is `refused`,
    after which the client is sent `last_words`.
    """
    running = set() if running is None else running
    sender = Sender(send)
    task = asyncio.create_task(work(sender))
    gone = asyncio.create_task(_wait_for_disconnect(receive))
    running.add(task)
    try:
        await _wait_for_first(sender, task, gone, *([refused] if refused is not None else []))
        if task.done() and not task.cancelled():
            task.result()
        elif refused is not None and refused.done():
            task.cancel()
            await asyncio.wait((task,))
            if last_words is not None and sender.is_whole:  # else they would continue a partly sent event
                await asyncio.wait_for(sender(last_words(refused.result())), SEND_SECONDS)
        if not gone.done():
            await asyncio.wait_for(sender(b"", more=False), SEND_SECONDS)
    except TimeoutError as error:
        raise SlowClientError(f"the client has read nothing for {SEND_SECONDS:.0f} seconds") from error
    finally:
        running.discard(task)
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _wait_for_first(sender: Sender, *ends: "asyncio.Future[Any]") -> None:
    """Wait until the first of these is done; TimeoutError if the client does not read."""
    while True:
        done, _ = await asyncio.wait(ends, timeout=SEND_SECONDS / 4, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return
        if sender.is_stuck:
            raise TimeoutError


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _clock() -> float:
    return asyncio.get_running_loop().time()
