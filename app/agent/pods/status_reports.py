"""Status reports to the API: many pods in one request, the newest status of each, repeated until accepted.

A lone change goes at once; what changes while a request is under way goes together in the next. While that is more than one,
there is a pause between requests, as each costs the API, the database and the controllers about as much as three reports do.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from app.agent.clock import Clock
from app.client.api import Api
from app.client.protocol import StatusOutcomes, StatusReport, StatusReports, node_segment, statuses_path
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.pod.pod_state import has_ended
from app.machinery.errors import ApiError
from app.structured_logging import Logger

MOST = 500  # reports in one request
MOST_KEPT = 256  # last reports of pods that have ended
GATHER = 0.02  # seconds of the pause
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

logger = Logger(__name__)


OnAnswer = Callable[[StatusReport, int], None]


class StatusReporter:
    """Reports that wait to be sent. One for all of an agent's nodes."""

    def __init__(self, api: Api, nodes: Sequence[str], clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._path = statuses_path(node_segment(nodes))
        self._pending: dict[str, StatusReport] = {}
        self._wake = asyncio.Event()
        self._most = MOST

    def __len__(self) -> int:
        """Return how many pods have a report that waits to be sent."""
        return len(self._pending)

    def put(self, report: StatusReport) -> None:
        self._pending[report.uid] = _merge(self._pending.get(report.uid), report)
        self._wake.set()

    async def run(self, on_answer: OnAnswer) -> None:
        """`on_answer` is called with each report that was answered and with the code: 200, 404 (no such pod) or 409."""
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                is_lone = len(self._pending) == 1
                if await self._once(on_answer):
                    pause = FIRST_PAUSE
                    await asyncio.sleep(0 if is_lone or len(self._pending) >= self._most else GATHER)
                else:
                    await self._clock.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, on_answer: OnAnswer) -> bool:
        batch = {uid: self._pending.pop(uid) for uid in list(self._pending)[: self._most]}
        try:
            body = await self._api.request("POST", self._path, StatusReports(items=tuple(batch.values())))
            outcomes = msgspec.json.decode(body, type=StatusOutcomes).items
        except (ApiError, OSError, msgspec.MsgspecError) as error:
            self._requeue(batch, error)
            return False
        self._most = MOST
        try:
            for outcome in outcomes:
                report = batch.pop(outcome.uid, None)
                if report is not None:
                    on_answer(report, outcome.code)
        finally:
            self._put_back(batch)  # what was not answered, or failed in the callback
        return not batch

    def _requeue(self, batch: dict[str, StatusReport], error: Exception) -> None:
        """Drops only a single report that is refused as such: it must not hold up the others for ever."""
        if isinstance(error, ApiError) and error.code in (400, 413, 422):
            if len(batch) == 1:
                logger.error("API refuses the status of a pod; dropping it", pod_uid=next(iter(batch)), error=error)
                return
            self._most = max(len(batch) // 2, 1)
        logger.warning("cannot report the status of pods; retrying", count=len(batch), error=error)
        self._put_back(batch)

    def _put_back(self, batch: dict[str, StatusReport]) -> None:
        """Into the queue again. If there is a newer report by now, only the events are added to it."""
        newer = {uid: _merge(batch.get(uid), report) for uid, report in self._pending.items()}
        self._pending = {**batch, **newer}


def _merge(older: StatusReport | None, newer: StatusReport) -> StatusReport:
    if older is None or not older.events:
        return newer
    return replace(newer, events=older.events + newer.events)


class LastReports:
    """Last reports of pods that have ended, for an API whose database goes back in time and forgets them. Bounded.

    `pods` keeps a report when it is accepted, and sends it again if the API says that the pod still runs. A pod whose report
    is no longer here counts as lost, as after a restart of the agent, and its Job replaces it.
    """

    def __init__(self) -> None:
        self._reports: OrderedDict[str, StatusReport] = OrderedDict()

    def keep(self, report: StatusReport) -> None:
        """Remember an accepted report, if it is of an end."""
        if has_ended(report.status):
            self._reports[report.uid] = replace(report, events=())
            if len(self._reports) > MOST_KEPT:
                self._reports.popitem(last=False)

    def find(self, pod: Pod) -> StatusReport | None:
        """The report of a pod that has ended here, and that the API takes for one that goes on."""
        report = self._reports.get(pod.metadata.uid)
        if report is None or is_terminal(pod):
            return None
        return replace(report, gone=pod.metadata.deletion_timestamp is not None)
