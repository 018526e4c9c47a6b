"""Revocation: ends streams (watches, followed logs, exec, attach, port-forward, agents' calls) whose client lost its token or
right.

`app.api.resources.kubernetes` and `app.api.dependencies` put a `Claim` into the state of the request; whoever sends the stream
waits for `refusal` beside its work. One task a process looks at all open streams every `SECONDS`: at their tokens in one query,
and at roles, of which the process has a copy, once for a new stream and then only after one of them has changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Scope

from app.machinery.errors import ApiError
from app.structured_logging import Logger

SECONDS = 3.0  # between looks
TOGETHER = 100  # streams that are judged in one go, before others have their turn

logger = Logger(__name__)
Refused = asyncio.Future[ApiError]
"""The 401 or 403 by which a stream ends, once there is one."""


@dataclass(frozen=True)
class Claim:
    """The right by which a client has its stream.

    digest: of its token.
    judge:  raises ApiError if roles and bindings allow the stream no longer; None if they do not decide about it.
    """

    digest: bytes
    judge: Callable[[], Awaitable[None]] | None = None


class Revocations:
    """The open streams of one process.

    ended:    which of these tokens are not good any more, by their digests.
    policies: the roles and bindings, another object after each change.
    """

    def __init__(
        self,
        ended: Callable[[Collection[bytes]], Awaitable[Collection[bytes]]],
        policies: Callable[[], Awaitable[object]],
    ) -> None:
        self._ended = ended
        self._policies = policies
        self._checked_policies: object = None
        self._open: dict[Refused, Claim] = {}
        self._unjudged: set[Refused] = set()  # roles may have changed between a request's authorization and its stream
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, claim: Claim) -> Iterator[Refused]:
        """A future that is done when the claim has ended, and cancelled with the context."""
        refused: Refused = asyncio.get_running_loop().create_future()
        self._open[refused] = claim
        self._unjudged.add(refused)
        if self._checking is None:
            self._checking = asyncio.create_task(self._check_periodically())
        try:
            yield refused
        finally:
            del self._open[refused]
            self._unjudged.discard(refused)
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
        """End the streams whose claims have ended. Raises what the look-up raises; then nothing counts as judged."""
        claims = dict(self._open)
        ended = await self._ended({claim.digest for claim in claims.values()})
        policies = await self._policies()
        for place, (refused, claim) in enumerate(claims.items(), start=1):
            error = _unauthorized() if claim.digest in ended else None
            is_due = policies is not self._checked_policies or refused in self._unjudged
            if error is None and claim.judge is not None and is_due:
                error = await _judge(claim.judge)
            if error is not None and not refused.done():
                logger.info("closing a stream: access was revoked", reason=error.message)
                refused.set_result(error)
            if place % TOGETHER == 0:
                await asyncio.sleep(0)
        self._checked_policies = policies
        self._unjudged.difference_update(claims)


def _unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


async def _judge(judge: Callable[[], Awaitable[None]]) -> ApiError | None:
    try:
        await judge()
    except ApiError as error:
        if error.code in (401, 403):
            return error
        raise
    return None


@contextmanager
def refusal(scope: Scope) -> Iterator[Refused]:
    """For the stream that answers a request. Without a claim in its state it is never refused."""
    claim: Claim | None = scope.get("state", {}).get("claim")
    if claim is None:
        yield asyncio.get_running_loop().create_future()
        return
    revocations: Revocations = scope["app"].state.revocations
    with revocations.watching(claim) as refused:
        yield refused
