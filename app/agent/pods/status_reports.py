"""Status reports to the API: many pods in one request, the newest status of each, repeated until accepted.

There is no timer. A lone change goes at once; what changes while a request is under way goes together in the next.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from app.agent.clock import Clock
from app.agent.pods.kubelet_events import Event
from app.client.api import Api
from app.kinds.pod.pod import PodStatus
from app.machinery.errors import ApiError
from app.structured_logging import Logger

MOST = 500  # reports in one request
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

logger = Logger(__name__)


class Report(msgspec.Struct, frozen=True):
    """The word about one pod. `gone`: it is being deleted and nothing of it runs any more. Events since the last word."""

    uid: str
    namespace: str
    name: str
    status: PodStatus
    gone: bool = False
    events: tuple[Event, ...] = ()


class _Answer(msgspec.Struct):
    uid: str
    code: int
    message: str = ""


class _Answers(msgspec.Struct):
    items: tuple[_Answer, ...] = ()


Heard = Callable[[Report, int], None]


class Reports:
    """What waits to be told. One for all of an agent's nodes."""

    def __init__(self, api: Api, nodes: Sequence[str], clock: Clock) -> None:
        self._api, self._clock = api, clock
        node = nodes[0] if len(nodes) == 1 else "-"
        self._path = f"/apis/agents.jobplane.dev/v1/nodes/{node}/statuses"
        self._waiting: dict[str, Report] = {}
        self._wake = asyncio.Event()
        self._most = MOST

    def put(self, report: Report) -> None:
        self._waiting[report.uid] = _after(self._waiting.get(report.uid), report)
        self._wake.set()

    async def run(self, heard: Heard) -> None:
        """`heard` is called with each report that was answered and with the code: 200, 404 (no such pod) or 409."""
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if await self._once(heard):
                    pause = FIRST_PAUSE
                else:
                    await self._clock.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, heard: Heard) -> bool:
        batch = {uid: self._waiting.pop(uid) for uid in list(self._waiting)[: self._most]}
        try:
            body = await self._api.request("POST", self._path, {"items": list(batch.values())})
            answers = msgspec.json.decode(body, type=_Answers).items
        except (ApiError, OSError, msgspec.MsgspecError) as error:
            self._back(batch, error)
            return False
        self._most = MOST
        try:
            for answer in answers:
                report = batch.pop(answer.uid, None)
                if report is not None:
                    heard(report, answer.code)
        finally:
            self._keep(batch)  # what was not answered, or not heard
        return not batch

    def _back(self, batch: dict[str, Report], error: Exception) -> None:
        """Nothing is dropped but a single report that is refused as such: it must not hold up the others for ever."""
        logger.warning("cannot report the status of pods; retrying", count=len(batch), error=error)
        if isinstance(error, ApiError) and error.code in (400, 413, 422):
            if len(batch) == 1:
                logger.error("API refuses the status of a pod; dropping it", pod_uid=next(iter(batch)), error=error)
                return
            self._most = max(len(batch) // 2, 1)
        self._keep(batch)

    def _keep(self, batch: dict[str, Report]) -> None:
        """Back into the queue. There may be newer word by now: of what was not heard, only the events are left then."""
        newer = {uid: _after(batch.get(uid), report) for uid, report in self._waiting.items()}
        self._waiting = {**batch, **newer}


def _after(older: Report | None, newer: Report) -> Report:
    if older is None or not older.events:
        return newer
    return msgspec.structs.replace(newer, events=older.events + newer.events)
