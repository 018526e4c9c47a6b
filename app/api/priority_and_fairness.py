"""API Priority and Fairness: how many requests are worked on at once, by kind of work, and which of the waiting ones is next.

`app.api.resources.kubernetes` takes a seat for each request once it knows the user. A level has so many seats; a user who finds
none free waits in a queue of its own, and users take turns. So a client that floods the API waits for itself, and others pass
it. Agents, and with them the leases of nodes, wait for nobody. What waits too long, or finds its queue full, gets 429 with
Retry-After.

Facts: k8s.io/apiserver/pkg/util/flowcontrol. Kubernetes shuffles users into a fixed number of queues and estimates the work of
lists from their size; here each user has a queue, and a list takes seats for what it may return.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from starlette.types import Scope

from app.api.auth.authenticator import ACCOUNTS, NODES, User
from app.api.resources.selection import Selection
from app.machinery.errors import ApiError
from app.metrics.instruments import Family, Type, family
from app.metrics.registry import MetricsRegistry

SEATS = 128  # of a level; a POST holds one for about 5 ms, nearly all of it waiting for the database
MOST_OF_ONE_USER = SEATS // 2
MOST_WAITING = 256  # requests of one user
MOST_WAITING_IN_ALL = 8_192  # of a level
MOST_STREAMS = 4_096  # open watches, logs and execs of one user in one process
MOST_STREAMS_OF_A_FLEET = 65_536  # the same of agents that share a token for many nodes: each has a watch or two
WAIT_SECONDS = 15.0  # a quarter of a request's time, as in Kubernetes
OBJECTS_PER_SEAT, WIDEST = 100, 10  # of a list, as in Kubernetes


class _Waiter(NamedTuple):
    width: int
    turn: "asyncio.Future[None]"


class _Flow:
    """One user's requests at a level."""

    __slots__ = ("held", "user", "waiting")

    def __init__(self, user: str) -> None:
        self.user = user
        self.held = 0
        self.waiting: deque[_Waiter] = deque()


class Seat:
    """What a request holds while it is worked on. `release` it once."""

    __slots__ = ("_flow", "_level", "_width")

    def __init__(self, level: "Level", flow: _Flow, width: int) -> None:
        self._level, self._flow, self._width = level, flow, width

    def release(self) -> None:
        self._level.give_back(self._flow, self._width)


class Level:
    """A priority level: seats, and the queues of those who wait for one."""

    def __init__(self, name: str, seats: int = SEATS, most_of_one_user: int = MOST_OF_ONE_USER) -> None:
        self.name = name
        self.executing = self.waiting = self.rejected = 0
        self._seats, self._most_of_one_user = seats, most_of_one_user
        self._flows: dict[str, _Flow] = {}
        self._turns: dict[str, _Flow] = {}  # of users who wait, in the order of their turns

    async def take(self, user: str, width: int = 1) -> Seat:
        """Wait for `width` seats. 429 if the user's queue is full, or none became free in time."""
        seat = self.take_free(user, width)
        if seat is None:
            flow = self._flow(user)
            await self._wait(flow, width)
            seat = Seat(self, flow, width)
        return seat

    def take_free(self, user: str, width: int = 1) -> Seat | None:
        """Take `width` seats; None if there are not so many, or others wait: `take` waits with them."""
        if self._turns or not self._has_room(width):
            return None
        flow = self._flow(user)
        if not self._may_hold(flow, width):
            self._forget(flow)
            return None
        self._occupy(flow, width)
        return Seat(self, flow, width)

    def _flow(self, user: str) -> _Flow:
        flow = self._flows.get(user)
        if flow is None:
            flow = self._flows[user] = _Flow(user)
        return flow

    def give_back(self, flow: _Flow, width: int) -> None:
        self.executing -= width
        flow.held -= width
        if self._turns:
            self._hand_on()
        self._forget(flow)

    def _has_room(self, width: int) -> bool:
        return self.executing + width <= self._seats

    def _may_hold(self, flow: _Flow, width: int) -> bool:
        return flow.held + width <= self._most_of_one_user

    def _occupy(self, flow: _Flow, width: int) -> None:
        self.executing += width
        flow.held += width

    async def _wait(self, flow: _Flow, width: int) -> None:
        if len(flow.waiting) >= MOST_WAITING or self.waiting >= MOST_WAITING_IN_ALL:
            self._forget(flow)
            raise self._reject()
        waiter = _Waiter(width, asyncio.get_running_loop().create_future())
        flow.waiting.append(waiter)
        self.waiting += 1
        self._turns.setdefault(flow.user, flow)
        self._hand_on()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await waiter.turn
        except BaseException as error:
            self._leave(flow, waiter)
            if isinstance(error, TimeoutError):
                raise self._reject() from None
            raise

    def _leave(self, flow: _Flow, waiter: _Waiter) -> None:
        """Undo what `_wait` has done for a request that is gone, be it that its turn had just come."""
        if waiter in flow.waiting:
            flow.waiting.remove(waiter)
            self.waiting -= 1
            self._hand_on()
            self._forget(flow)
        elif waiter.turn.cancelled():
            self._forget(flow)  # `_hand_on` has passed it over
        else:
            self.give_back(flow, waiter.width)

    def _reject(self) -> ApiError:
        self.rejected += 1
        return _too_many("too many requests, please try again later")

    def _hand_on(self) -> None:
        """Give free seats to those who wait, one request of each user in turn.

        A user who holds as many as it may is passed over. A wide request for which there are too few seats is not: or narrow
        ones would take each seat that becomes free before it.
        """
        for user, flow in list(self._turns.items()):
            while flow.waiting and flow.waiting[0].turn.done():  # cancelled, and its task has not run since
                flow.waiting.popleft()
                self.waiting -= 1
            if flow.waiting and not self._may_hold(flow, flow.waiting[0].width):
                continue
            if flow.waiting and not self._has_room(flow.waiting[0].width):
                return
            del self._turns[user]
            if flow.waiting:
                waiter = flow.waiting.popleft()
                self.waiting -= 1
                self._occupy(flow, waiter.width)
                waiter.turn.set_result(None)
            if flow.waiting:
                self._turns[user] = flow  # behind all others

    def _forget(self, flow: _Flow) -> None:
        if not flow.held and not flow.waiting:
            self._flows.pop(flow.user, None)
            self._turns.pop(flow.user, None)


class Fairness:
    """The priority levels of one API process."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._people, self._accounts = Level("people"), Level("service-accounts")
        self._streams: Counter[str] = Counter()  # open ones, by user
        metrics.add_collector("flow control", self._collect)

    def take_free(self, scope: Scope, user: User, width: int) -> bool:
        """Take free seats; False if there are too few: `take` waits for them. Agents need none."""
        if NODES in user.groups:
            return True
        seat = self._level_of(user).take_free(user.name, width)
        if seat is not None:
            scope["seat"] = seat
        return seat is not None

    async def take(self, scope: Scope, user: User, width: int) -> None:
        """Wait for a request's turn; `release` ends it."""
        scope["seat"] = await self._level_of(user).take(user.name, width)

    def _level_of(self, user: User) -> Level:
        return self._accounts if ACCOUNTS in user.groups else self._people

    def check_streams(self, user: User) -> None:
        """429 if a user has too many streams open, be it an agent."""
        most = MOST_STREAMS_OF_A_FLEET if any(each.endswith("*") for each in user.nodes) else MOST_STREAMS
        if self._streams.get(user.name, 0) >= most:
            raise _too_many(f"you have {most} open watches and streams: close some, or watch all namespaces at once")

    @contextmanager
    def stream(self, user: User) -> Iterator[None]:
        """Count a stream of a user as open until the context ends."""
        self._streams[user.name] += 1
        try:
            yield
        finally:
            self._streams[user.name] -= 1
            if not self._streams[user.name]:
                del self._streams[user.name]

    async def _collect(self) -> Iterable[Family]:
        levels = (self._people, self._accounts)
        return [
            family(name, help_, kind, [({"priority_level": each.name}, getattr(each, what)) for each in levels])
            for name, help_, kind, what in _METRICS
        ]


def _too_many(why: str) -> ApiError:
    return ApiError(429, "TooManyRequests", why, retryAfterSeconds=1)


def release(scope: Scope) -> None:
    """Let the next one in: the request is answered, or is a stream that has begun."""
    seat: Seat | None = scope.pop("seat", None)
    if seat is not None:
        seat.release()


_METRICS: tuple[tuple[str, str, Type, str], ...] = (
    ("apiserver_flowcontrol_current_executing_seats", "Seats that requests hold.", "gauge", "executing"),
    ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat.", "gauge", "waiting"),
    ("apiserver_flowcontrol_rejected_requests_total", "Requests that were refused with 429.", "counter", "rejected"),
)


def seats_of(verb: str, selection: Selection) -> int:
    """Return how many seats a request takes: a list one for each 100 objects that it may return.

    So does a watch that begins with what exists, which keeps them until that is sent.
    """
    is_list = verb in ("list", "deletecollection") or (verb == "watch" and selection.options.begins_with_objects)
    if not is_list or selection.fields.requirement("metadata.name"):
        return 1
    limit = selection.options.limit
    return min(-(-limit // OBJECTS_PER_SEAT), WIDEST) if limit > 0 else WIDEST
