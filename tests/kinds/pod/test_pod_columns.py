"""What kubectl shows of a pod."""

from datetime import timedelta

import pytest

from app.kinds.pod.pod import KIND
from app.machinery.durations import age, human_duration
from tests.build import NOW
from tests.kinds.pods import made

ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}
UP = {"running": {"startedAt": "2026-07-24T11:00:00Z"}}


def state(state_=None, name="main", **more):
    return {"name": name, "state": state_ or {}} | more


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({}, ["0/1", "Pending", "0"], id="waits for a node"),
        pytest.param(
            {"status": {"phase": "Running", "containerStatuses": [state(UP, ready=True)]}},
            ["1/1", "Running", "0"],
            id="runs",
        ),
        pytest.param(
            {"status": {"phase": "Succeeded", "containerStatuses": [state(ENDED)]}},
            ["0/1", "Completed", "0"],
            id="is done",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "containerStatuses": [state({"terminated": {"exitCode": 3}})]}},
            ["0/1", "ExitCode:3", "0"],
            id="failed without a reason",
        ),
        pytest.param({"status": {"phase": "Failed", "reason": "Evicted"}}, ["0/1", "Evicted", "0"], id="was evicted"),
        pytest.param(
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        state(
                            {"waiting": {"reason": "CrashLoopBackOff"}},
                            restartCount=4,
                            lastState={"terminated": {"exitCode": 1, "finishedAt": "2026-07-24T11:55:00Z"}},
                        )
                    ],
                }
            },
            ["0/1", "CrashLoopBackOff", "4 (5m ago)"],
            id="crashes again and again",
        ),
        pytest.param(
            {
                "initContainers": [{"name": "i", "image": "a"}, {"name": "j", "image": "a"}],
                "status": {
                    "phase": "Pending",
                    "initContainerStatuses": [state(ENDED, "i"), state(UP, "j")],
                    "containerStatuses": [state({"waiting": {"reason": "PodInitializing"}})],
                },
            },
            ["0/1", "Init:1/2", "0"],
            id="initialises",
        ),
        pytest.param(
            {
                "initContainers": [{"name": "i", "image": "a"}],
                "status": {"initContainerStatuses": [state({"terminated": {"exitCode": 1, "reason": "Error"}}, "i")]},
            },
            ["0/1", "Init:Error", "0"],
            id="failed to initialise",
        ),
        pytest.param(
            {
                "initContainers": [{"name": "i", "image": "a", "restartPolicy": "Always"}],
                "status": {
                    "phase": "Running",
                    "initContainerStatuses": [state(UP, "i", started=True, ready=True)],
                    "containerStatuses": [state(UP, ready=True)],
                },
            },
            ["2/2", "Running", "0"],
            id="has a sidecar",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-07-24T12:00:30Z"}, "status": {"phase": "Running"}},
            ["0/1", "Terminating", "0"],
            id="is being stopped",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-07-24T12:00:30Z"}, "status": {"phase": "Succeeded"}},
            ["0/1", "Succeeded", "0"],
            id="ended before it was stopped",
        ),
    ],
)
def test_row(parts, expected):
    assert KIND.row(made(**parts), NOW)[1:4] == expected


def test_wide_row():
    pod = made(
        metadata={"creationTimestamp": "2026-07-24T11:58:30Z"},
        nodeName="n",
        readinessGates=[{"conditionType": "a"}],
        status={"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "a", "status": "True"}]},
    )

    assert KIND.row(pod, NOW) == ["p", "0/1", "Pending", "0", "90s", "10.0.0.1", "n", "<none>", "1/1"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-5, "<invalid>"), (-1, "0s"), (119, "119s"), (120, "2m"), (599, "9m59s"), (600, "10m"), (10799, "179m")),
        *((10800, "3h"), (12060, "3h21m"), (28800, "8h"), (172800, "2d"), (176400, "2d1h"), (8 * 86400, "8d")),
        *((730 * 86400, "2y"), (765 * 86400, "2y35d"), (8 * 365 * 86400, "8y")),
    ],
)
def test_durations(seconds, text):
    assert human_duration(timedelta(seconds=seconds)) == text
    assert age(None, NOW) == "<unknown>"
