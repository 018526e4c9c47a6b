"""Revocation of access: ends streams (watches, followed logs, exec, attach, port-forward, agents' calls) whose client has lost
its token or right.

`app.api.resources.kubernetes` and `app.api.dependencies` put a `StreamAccess` into the state of the request; the sender of a
stream waits for `watch_revocation` beside its work. One task for each process checks all open streams every `SECONDS`: tokens
in one query; roles, from the process's copy, once for a new stream and then only after a change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.types import Scope

from app.machinery.errors import ApiError
from app.structured_logging import Logger

SECONDS = 3.0  # between checks
TOGETHER = 100  # streams checked in one turn of the event loop

logger = Logger(__name__)
Revoked = asyncio.Future[ApiError]
"""The 401 or 403 by which a stream ends, once there is one."""


@dataclass(frozen=True)
class StreamAccess:
    """The token and right by which a client has its stream.

    digest:     of its token.
    authorize:  raises ApiError if roles and bindings no longer allow the stream; None if they do not decide it.
    expires_at: when a credential ends of which the database knows nothing; None for tokens that are there.
    """

    digest: bytes
    authorize: Callable[[], Awaitable[None]] | None = None
    expires_at: datetime | None = None


class Revocations:
    """Registry of the open streams of one process.

    ended:    returns those of the given token digests that are no longer valid.
    policies: returns roles and bindings, another object after each change.
    now:      the time by which credentials end that are in no database.
    """

    def __init__(
        self,
        ended: Callable[[Collection[bytes]], Awaitable[Collection[bytes]]],
        policies: Callable[[], Awaitable[object]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ended = ended
        self._now = now
        self._policies = policies
        self._checked_policies: object = None
        self._open: dict[Revoked, StreamAccess] = {}
        self._unchecked: set[Revoked] = set()  # roles may have changed between a request's authorization and its stream
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, access: StreamAccess) -> Iterator[Revoked]:
        """Yield a future that is done once access is revoked, and cancelled with the context."""
        refused: Revoked = asyncio.get_running_loop().create_future()
        self._open[refused] = access
        self._unchecked.add(refused)
        if self._checking is None:
            self._checking = asyncio.create_task(self._check_periodically())
        try:
            yield refused
        finally:
            del self._open[refused]
            self._unchecked.discard(refused)
            refused.cancel()
            if not self._open and self._checking is not None:
                self._checking.cancel()
                self._checking = None

    async def _check_periodically(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self.check_streams()
            except Exception as error:  # a failed check ends no stream
                logger.info("cannot check tokens and roles of open streams; retrying", error=error)

    async def check_streams(self) -> None:
        """End the streams whose access is revoked. If a look-up raises, every stream is checked again next time."""
        accesses = dict(self._open)
        stored = {access.digest for access in accesses.values() if access.expires_at is None}
        ended = await self._ended(stored) if stored else ()
        now = self._now()
        policies = await self._policies()
        for place, (refused, access) in enumerate(accesses.items(), start=1):
            has_ended = access.expires_at <= now if access.expires_at else access.digest in ended
            error = _unauthorized_error() if has_ended else None
            is_due = policies is not self._checked_policies or refused in self._unchecked
            if error is None and access.authorize is not None and is_due:
                error = await _check_authorization(access.authorize)
            if error is not None and not refused.done():
                logger.info("closing a stream: access was revoked", reason=error.message)
                refused.set_result(error)
            if place % TOGETHER == 0:
                await asyncio.sleep(0)
        self._checked_policies = policies
        self._unchecked.difference_update(accesses)


def _unauthorized_error() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


async def _check_authorization(authorize: Callable[[], Awaitable[None]]) -> ApiError | None:
    try:
        await authorize()
    except ApiError as error:
        if error.code in (401, 403):
            return error
        raise
    return None


@contextmanager
def watch_revocation(scope: Scope) -> Iterator[Revoked]:
    """Yield the future for the stream of a request; without a `StreamAccess` in its state, one that is never done."""
    access: StreamAccess | None = scope.get("state", {}).get("stream_access")
    if access is None:
        yield asyncio.get_running_loop().create_future()
        return
    revocations: Revocations = scope["app"].state.revocations
    with revocations.watch(access) as refused:
        yield refused
