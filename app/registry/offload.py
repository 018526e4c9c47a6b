"""Offload: work on large documents, in one thread beside the event loop, so that it delays no other request.

The API and `app.registry.verbs.objects` call `run` wherever the time that a step takes grows with what a client has sent or
stored: decoding, patching, defaulting, validating, encoding. A step on a small document runs at once, on the loop. All steps come
before a commit, so that a refusal for want of room leaves nothing behind.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from app.machinery.errors import ApiError

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 16 << 10  # bytes; the slowest step takes about 4 us a byte
YAML_WEIGHT = 8  # a byte of YAML takes as long as so many of JSON
MOST_WAITING = 16  # steps in the queue
SWITCH_SECONDS = 0.0005  # after which the thread gives way to the loop; each of the loop's callbacks may wait for that

_THREAD = ThreadPoolExecutor(1, "large-documents")


class _Queue:
    """Counts what waits for the thread or is in it."""

    length = 0


_QUEUE = _Queue()


async def run(size: int, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a step, in the thread if it is large; `size` is in bytes, of all that it looks at. 429 if too many wait before it.

    A step may not change what others see, and nothing that it sees may change meanwhile.
    """
    if size <= LARGE:
        return step(*args, **kwargs)
    if _QUEUE.length >= MOST_WAITING:
        why = "too many large objects are being worked on, please try again later"
        raise ApiError(429, "TooManyRequests", why, retryAfterSeconds=1)
    _QUEUE.length += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(step, *args, **kwargs))
    finally:
        _QUEUE.length -= 1
