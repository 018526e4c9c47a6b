"""Limits of one HTTP connection: bytes in memory, and timeouts. `app.api.http.connection` subclasses `BoundedConnection`.

Bytes are counted as they arrive, before parsing, and so before authentication. A connection has one timer, which checks its
deadline: a timer for each request would cost more than the limits are worth.
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
MOST_PIPELINED = 100  # pipelined requests that wait for their turn
MOST_UNWANTED = (
    16 << 20
)  # bytes of a body discarded after the answer: some clients read it only after sending everything
DISCARDED_FREELY = 256 << 10  # bytes of it; what follows is read when there is time
MOST_DISCARDING, DISCARD_SECONDS = 64, 0.005  # connections whose body is discarded so; seconds between two reads of any
WRITE_AHEAD = (
    16 << 10
)  # bytes encrypted for a client before the kernel takes them: their memory stays until it disconnects
MOST_UNREAD = 64 << 20  # bytes buffered for all clients of this process; above, the stricter QUICK limits apply
MOST_CONNECTIONS = 16_384

HEAD_SECONDS = 32.0  # from the first byte to the last of a head, and to the first request: kube-apiserver's figure
BODY_STALL_SECONDS = 30.0  # between two pieces of a body
BODY_SECONDS = 300.0  # for a whole body
UNREAD_SECONDS = 30.0  # in which a client must read something of its buffered answer
QUICK_SECONDS, QUICK_BYTES = 2.0, 64 << 10  # the same above MOST_UNREAD: seconds, and bytes to read in them
LINGER_SECONDS = 10.0  # to receive the rest of an answered request: closing with unread bytes would lose the answer
_LONGEST_CHECK_SECONDS = 30.0

_TEXTS = {
    400: "Invalid HTTP request received.",
    408: "The request did not arrive in time.",
    414: f"The path and query of a request may have {LONGEST_TARGET} bytes.",
    431: f"The headers of a request may have {MOST_HEAD_BYTES} bytes, one of them {LONGEST_HEADER}; there may be {MOST_HEADERS}.",
    503: "There are too many connections: try again later.",
}


class _LimitExceededError(Exception):
    """Raised in a parser callback to stop the parser: the request exceeds a limit."""


class UnreadBytes:
    """Bytes buffered for slow clients of this process, as of the last check of each."""

    def __init__(self) -> None:
        self._sizes: dict[BoundedConnection, int] = {}
        self.total = 0

    def put(self, connection: "BoundedConnection", size: int) -> None:
        self.drop(connection)
        self._sizes[connection] = size
        self.total += size

    def drop(self, connection: "BoundedConnection") -> None:
        self.total -= self._sizes.pop(connection, 0)


UNREAD = UnreadBytes()
DISCARDING: "set[BoundedConnection]" = set()  # whose bodies are read and discarded, one read at a time


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's protocol with limits. `_deadline`: the loop time by which the client must have sent what is expected."""

    _timer: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None  # the request being answered; `cycle` is the newest one
    _deadline = inf
    _is_head_open = False
    _is_body_open = False
    _body_ends = inf  # loop time by which the whole body must have come
    _since_body = 0  # bytes since the last piece of a body, or since the start of the connection
    _discarded = 0  # bytes of a body after its answer
    _is_refused = False
    _refusal = 400
    _unread: int | None = None  # bytes buffered for the client at the last check
    _unread_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._deadline = self.loop.time() + HEAD_SECONDS
        self._timer = self.loop.call_later(HEAD_SECONDS, self._check_deadlines)
        if len(self.connections) > MOST_CONNECTIONS:
            self._is_refused = True
            self._respond(503)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limits()
        self._disconnect()
        super().connection_lost(exc)

    def _disconnect(self) -> None:
        """Tell the application that the client is gone. uvicorn does so for the newest request only."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _end_limits(self) -> None:
        UNREAD.drop(self)
        DISCARDING.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Receiving

    def _feed(self, data: bytes) -> None:
        """Count and parse bytes. Refuses too many, and malformed HTTP; raises HttpParserUpgrade as the parser does."""
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

    def _discard(self, size: int) -> None:
        """Count bytes that came after the answer; abort the connection above MOST_UNWANTED, or if too many send such."""
        self._discarded += size
        if self._discarded <= DISCARDED_FREELY:
            return
        DISCARDING.add(self)
        if self._discarded > MOST_UNWANTED or len(DISCARDING) > MOST_DISCARDING:
            self.transport.abort()
            return
        # All of them together are read at one pace: a dozen that send megabytes would take the loop's whole time.
        self.flow.pause_reading()
        self.loop.call_later(DISCARD_SECONDS * len(DISCARDING), self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _abort_parsing(self, code: int) -> None:
        self._refusal = code
        raise _LimitExceededError

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head_open = True
        self._deadline = self.loop.time() + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > LONGEST_TARGET:
            self._abort_parsing(414)

    def on_headers_complete(self) -> None:
        if len(self.headers) > MOST_HEADERS:
            self._abort_parsing(431)
        for _, value in self.headers:  # a generator takes three times as long
            if len(value) > LONGEST_HEADER:
                self._abort_parsing(431)
        if len(self.pipeline) >= MOST_PIPELINED:
            self._abort_parsing(400)
        super().on_headers_complete()  # raises for an invalid path: then there is no request whose body to expect
        self._is_head_open = False
        self._expect_body()

    def _expect_body(self) -> None:
        now = self.loop.time()
        self._is_body_open, self._discarded = True, 0
        self._body_ends, self._deadline = now + BODY_SECONDS, now + BODY_STALL_SECONDS

    def on_body(self, body: bytes) -> None:
        self._since_body = 0
        if self.cycle.response_complete:
            self._discard(len(body))
            return
        self._deadline = min(self.loop.time() + BODY_STALL_SECONDS, self._body_ends)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._since_body, self._is_body_open = 0, False
        DISCARDING.discard(self)
        is_over = self.cycle.response_complete
        self._deadline = self.loop.time() + self.timeout_keep_alive if is_over else inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, without its timer for each request."""
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
            self._schedule_check(LINGER_SECONDS)
        elif not self._is_head_open:
            self._deadline = self.loop.time() + self.timeout_keep_alive

    # Sending

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread, self._unread_since = self._unsent_bytes(), self.loop.time()
        UNREAD.put(self, self._unread)
        self._schedule_check(QUICK_SECONDS)

    def _unsent_bytes(self) -> int:
        """Return bytes of the answer not yet taken by the client; of a streamed answer, without parts that are not made yet."""
        to_come = 0 if self._running is None else self._running.expected_content_length
        return to_come + self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._unread = None
        UNREAD.drop(self)
        super().resume_writing()

    # Timeouts

    def _schedule_check(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Close the connection if it is overdue; schedule the next check."""
        now = self.loop.time()
        if self._is_stuck(now):
            UNREAD.drop(self)  # at once, so that connections checked next are judged by the new total
            self.transport.abort()
        elif self._deadline <= now:
            self._on_deadline(now)
        soonest = _LONGEST_CHECK_SECONDS if self._unread is None else QUICK_SECONDS
        self._schedule_check(min(max(self._deadline - now, 0.1), soonest))

    def _is_stuck(self, now: float) -> bool:
        """Return whether the client reads nothing, or less than QUICK_BYTES while MOST_UNREAD is exceeded."""
        if self._unread is None:
            return False
        left, enough = self._unsent_bytes(), QUICK_BYTES if UNREAD.total > MOST_UNREAD else 1
        if self._unread - left >= enough:
            self._unread, self._unread_since = left, now
            UNREAD.put(self, left)
        return now - self._unread_since >= (UNREAD_SECONDS if enough == 1 else QUICK_SECONDS)

    def _on_deadline(self, now: float) -> None:
        is_unanswered = self._is_body_open and not self.cycle.response_complete
        if self._is_refused:
            self._deadline = now + LINGER_SECONDS
            if self._unread is None:
                self.transport.abort()
        elif is_unanswered and self.flow.read_paused:
            self._expect_body()  # the delay is ours: this process has paused reading
        elif is_unanswered or self._is_head_open:
            self._refuse(408)
        else:
            self._close()

    def _close(self) -> None:
        """Close the connection once everything is sent, or LINGER_SECONDS later."""
        self._is_refused = True
        self._deadline = self.loop.time() + LINGER_SECONDS
        self.transport.close()

    def _refuse(self, code: int) -> None:
        """Answer in the application's place, unless another answer is on its way, and discard the rest of the request."""
        if self._is_refused:
            return
        self._is_refused, self._discarded = True, 0
        running = self._running
        is_busy = running is not None and not running.response_complete
        is_last = running is self.cycle and not self._is_head_open
        self._disconnect()
        if running is not None and is_busy and (running.response_started or not is_last):
            self.transport.close()
        else:
            self._respond(code)
            self.flow.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self._deadline = self.loop.time() + LINGER_SECONDS
        self._schedule_check(LINGER_SECONDS)

    def _respond(self, code: int) -> None:
        text = _TEXTS[code].encode()
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text)
        self.transport.write(STATUS_LINE[code] + head + text)
