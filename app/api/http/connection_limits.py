"""Limits of one HTTP connection: bytes that it may hold, and seconds that it may take. `app.api.http.connection` builds on it.

Bytes are counted as they arrive, before they are parsed, and so before anybody is authenticated. A connection has one timer,
which looks at its deadline: a timer for each request would cost more than a request's limits.
"""

import asyncio
from math import inf
from typing import cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

MOST_HEAD_BYTES = 1 << 20  # of a request line and its headers, as in Go's net/http; of trailers and chunk sizes, too
MOST_HEADERS = 2_000
LONGEST_HEADER = 64 << 10  # bytes of one header's value
LONGEST_TARGET = 64 << 10  # bytes of a path with its query
MOST_PIPELINED = 100  # requests that wait for the answer to another on their connection
MOST_UNWANTED = 16 << 20  # bytes of a body that are read over after the answer, for clients that read only then
MOST_UNREAD = 64 << 20  # bytes that wait for clients of this process, over which clients must be quick
MOST_CONNECTIONS = 16_384

HEAD_SECONDS = 32.0  # from the first byte to the last of a head, and to the first request: kube-apiserver's figure
BODY_STALL_SECONDS = 30.0  # in which a body must go on
BODY_SECONDS = 300.0  # in which it must be there
UNREAD_SECONDS = 30.0  # in which a client must take something of what waits for it
QUICK_SECONDS, QUICK_BYTES = 2.0, 64 << 10  # and in which how much, while too much waits
LINGER_SECONDS = (
    10.0  # for the rest of a request that was answered: a connection that ends with bytes unread loses the answer
)
_LONGEST_LOOK = 30.0

_TEXTS = {
    400: "Invalid HTTP request received.",
    408: "The request did not arrive in time.",
    414: f"The path and query of a request may have {LONGEST_TARGET} bytes.",
    431: f"The headers of a request may have {MOST_HEAD_BYTES} bytes, one of them {LONGEST_HEADER}; there may be {MOST_HEADERS}.",
    503: "There are too many connections: try again later.",
}


class _RefusedError(Exception):
    """Stops the parser in the middle of what it has got."""


class Unread:
    """Bytes that wait for clients of this process that do not keep up, as far as they were seen to."""

    def __init__(self) -> None:
        self._sizes: dict[BoundedConnection, int] = {}
        self.total = 0

    def put(self, connection: "BoundedConnection", size: int) -> None:
        self.drop(connection)
        self._sizes[connection] = size
        self.total += size

    def drop(self, connection: "BoundedConnection") -> None:
        self.total -= self._sizes.pop(connection, 0)


UNREAD = Unread()


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's protocol, within limits. `_deadline` is when the client must have sent what is waited for."""

    _timer: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = (
        None  # the request that is being answered; `cycle` is the one that came last
    )
    _deadline = inf
    _is_head_open = False
    _is_body_open = False
    _body_ends = inf  # when the body must be there
    _since_body = 0  # bytes since a body went on, or since the connection began
    _unwanted = 0  # bytes of a body since its answer
    _is_refused = False
    _refusal = 400
    _unread: int | None = None  # bytes that waited for the client when it was last looked at
    _unread_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._deadline = self.loop.time() + HEAD_SECONDS
        self._timer = self.loop.call_later(HEAD_SECONDS, self._look)
        if len(self.connections) > MOST_CONNECTIONS:
            self._is_refused = True
            self._answer(503)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limits()
        self._disconnect()
        super().connection_lost(exc)

    def _disconnect(self) -> None:
        """Tell the application that the client is gone. uvicorn tells it only if no other request came after this one."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _end_limits(self) -> None:
        UNREAD.drop(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What comes in

    def _feed(self, data: bytes) -> None:
        """Count and parse. Refuses what is too much or no HTTP; raises HttpParserUpgrade as the parser does."""
        self._since_body += len(data)
        if self._since_body > MOST_HEAD_BYTES:
            self._refuse(431)
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise
        except httptools.HttpParserError:
            self._refuse(self._refusal)

    def _read_over(self, size: int) -> None:
        """Count bytes that came after the answer; too many of them end the connection."""
        self._unwanted += size
        if self._unwanted > MOST_UNWANTED:
            self.transport.abort()

    def _stop(self, code: int) -> None:
        self._refusal = code
        raise _RefusedError

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head_open = True
        self._deadline = self.loop.time() + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > LONGEST_TARGET:
            self._stop(414)

    def on_headers_complete(self) -> None:
        if len(self.headers) > MOST_HEADERS or any(len(value) > LONGEST_HEADER for _, value in self.headers):
            self._stop(431)
        if len(self.pipeline) >= MOST_PIPELINED:
            self._stop(400)
        super().on_headers_complete()  # raises for a path that is none: then no request is there whose body could come
        self._is_head_open = False
        self._expect_body()

    def _expect_body(self) -> None:
        now = self.loop.time()
        self._is_body_open, self._unwanted = True, 0
        self._body_ends, self._deadline = now + BODY_SECONDS, now + BODY_STALL_SECONDS

    def on_body(self, body: bytes) -> None:
        self._since_body = 0
        if self.cycle.response_complete:
            self._read_over(len(body))
            return
        self._deadline = min(self.loop.time() + BODY_STALL_SECONDS, self._body_ends)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._since_body, self._is_body_open = 0, False
        is_over = self.cycle.response_complete
        self._deadline = self.loop.time() + self.timeout_keep_alive if is_over else inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn has it, but for the timer that it makes for each request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._close()
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._is_body_open:
            self._deadline = self.loop.time() + LINGER_SECONDS
            self._look_in(LINGER_SECONDS)
        elif not self._is_head_open:
            self._deadline = self.loop.time() + self.timeout_keep_alive

    # What goes out

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread, self._unread_since = self._left(), self.loop.time()
        UNREAD.put(self, self._unread)
        self._look_in(QUICK_SECONDS)

    def _left(self) -> int:
        """Bytes of an answer that wait for the client; of one that is sent while it is made, without its next part."""
        to_come = 0 if self._running is None else self._running.expected_content_length
        return to_come + self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._unread = None
        UNREAD.drop(self)
        super().resume_writing()

    # Time

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """End what is overdue; look again when something may be."""
        now = self.loop.time()
        if self._is_stuck(now):
            UNREAD.drop(self)  # at once: those that are looked at next may stay for it
            self.transport.abort()
        elif self._deadline <= now:
            self._overdue(now)
        soonest = _LONGEST_LOOK if self._unread is None else QUICK_SECONDS
        self._look_in(min(max(self._deadline - now, 0.1), soonest))

    def _is_stuck(self, now: float) -> bool:
        """Whether the client takes nothing, or too little of too much."""
        if self._unread is None:
            return False
        left, enough = self._left(), QUICK_BYTES if UNREAD.total > MOST_UNREAD else 1
        if self._unread - left >= enough:
            self._unread, self._unread_since = left, now
            UNREAD.put(self, left)
        return now - self._unread_since >= (UNREAD_SECONDS if enough == 1 else QUICK_SECONDS)

    def _overdue(self, now: float) -> None:
        is_unanswered = self._is_body_open and not self.cycle.response_complete
        if self._is_refused:
            self._deadline = now + LINGER_SECONDS
            if self._unread is None:
                self.transport.abort()
        elif is_unanswered and self.flow.read_paused:
            self._expect_body()  # it is this process that does not read
        elif is_unanswered or self._is_head_open:
            self._refuse(408)
        else:
            self._close()

    def _close(self) -> None:
        """End the connection once all is sent, or its client takes nothing."""
        self._is_refused = True
        self._deadline = self.loop.time() + LINGER_SECONDS
        self.transport.close()

    def _refuse(self, code: int) -> None:
        """Answer in the application's place, if nothing else is being answered, and read over what still comes."""
        if self._is_refused:
            return
        self._is_refused, self._unwanted = True, 0
        running = self._running
        is_busy = running is not None and not running.response_complete
        is_last = running is self.cycle and not self._is_head_open
        self._disconnect()
        if running is not None and is_busy and (running.response_started or not is_last):
            self.transport.close()
        else:
            self._answer(code)
            self.flow.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self._deadline = self.loop.time() + LINGER_SECONDS
        self._look_in(LINGER_SECONDS)

    def _answer(self, code: int) -> None:
        text = _TEXTS[code].encode()
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text)
        self.transport.write(STATUS_LINE[code] + head + text)
