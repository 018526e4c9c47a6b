"""Last reports of pods that have ended, kept for an API whose database goes back in time and forgets them.

`pods` keeps a report when it is accepted, and sends it again if the API says that the pod still runs. Bounded: a pod whose
report is no longer kept counts as lost, as after a restart of the agent, and its Job replaces it.
"""

from collections import OrderedDict

from msgspec.structs import replace

from app.agent.pods.status_reports import Report
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.pod.pod_state import has_ended

MOST = 256


class Ends:
    def __init__(self) -> None:
        self._reports: OrderedDict[str, Report] = OrderedDict()

    def keep(self, report: Report) -> None:
        """Remember an accepted report, if it is of an end."""
        if has_ended(report.status):
            self._reports[report.uid] = replace(report, events=())
            if len(self._reports) > MOST:
                self._reports.popitem(last=False)

    def again(self, pod: Pod) -> Report | None:
        """The report of a pod that has ended here, and that the API takes for one that goes on."""
        report = self._reports.get(pod.metadata.uid)
        if report is None or is_terminal(pod):
            return None
        return replace(report, gone=pod.metadata.deletion_timestamp is not None)
