"""The Jobs that only have to be watched. They are all started at once, for what takes long in most of them is back-off."""

from pathlib import Path
from typing import Any

from tests.e2e.manifests import a_job, from_field

FAILS_ONCE = "mkdir {place}/$JOB_COMPLETION_INDEX 2>/dev/null && exit {code}; exit 0"
ODD_FAILS = "exit $((JOB_COMPLETION_INDEX % 2))"
INDEXED = {"completionMode": "Indexed"}


def indexed(name: str, script: str, parallelism: int, completions: int, **spec: Any) -> dict[str, Any]:
    return a_job(name, script, parallelism=parallelism, completions=completions, **INDEXED, **spec)


def on_exit_code(code: int, action: str) -> dict[str, Any]:
    """A podFailurePolicy."""
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [code]}}]}


def success_when(**rule: Any) -> dict[str, Any]:
    """A successPolicy."""
    return {"rules": [rule]}


def fails_once(name: str, place: Path, code: int = 1) -> str:
    """A script that fails the first time for each index, wherever it runs."""
    (place / name).mkdir()
    return FAILS_ONCE.format(place=place / name, code=code)


def local_failure(name: str, place: Path, **spec: Any) -> dict[str, Any]:
    """Each pod's container fails once."""
    (place / name).mkdir()
    script = f"mkdir {place / name}/$POD 2>/dev/null && exit 1; exit 0"
    return a_job(name, script, env=[from_field("POD", "metadata.uid")], pod={"restartPolicy": "OnFailure"}, **spec)


def until_evicted(name: str, place: Path) -> dict[str, Any]:
    """A Job of three pods that run until they are evicted, and whose successors succeed."""
    (place / name).mkdir()
    script = f"mkdir {place / name}/$JOB_COMPLETION_INDEX 2>/dev/null && exec sleep 1000; exit 0"
    ignored = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    return indexed(name, script, 3, 3, backoffLimit=2, podFailurePolicy=ignored)


def jobs(place: Path) -> list[dict[str, Any]]:
    """`place` is where they leave marks."""
    two_of_four = {"parallelism": 2, "completions": 4}
    return [
        a_job("j01", "true", **two_of_four),
        a_job("j02", "exit 1", backoffLimit=6, podFailurePolicy=on_exit_code(1, "FailJob")),
        indexed("j03", fails_once("j03", place, 42), 3, 3, backoffLimit=2, podFailurePolicy=on_exit_code(42, "Ignore")),
        until_evicted("j04", place),
        indexed("j08", 'echo "$JOB_COMPLETION_INDEX $HOSTNAME"', 2, 4),
        indexed("j10", "true", 2, 2, successPolicy=success_when(succeededCount=2)),
        indexed("j11", ODD_FAILS, 2, 5, successPolicy=success_when(succeededIndexes="0")),
        indexed("j12", ODD_FAILS, 2, 5, successPolicy=success_when(succeededCount=1)),
        indexed("j13", ODD_FAILS, 2, 4, backoffLimitPerIndex=1),
        indexed("j14", "exit 1", 1, 4, backoffLimitPerIndex=0, maxFailedIndexes=0),
        indexed("j15", "exit 1", 2, 2, backoffLimitPerIndex=1),
        indexed("j16", ODD_FAILS, 2, 2, backoffLimitPerIndex=1, podFailurePolicy=on_exit_code(1, "FailIndex")),
        local_failure("j18", place, **two_of_four),
        indexed("j19", fails_once("j19", place), 2, 4),
        a_job("j20", "exec sleep 1000", parallelism=2, completions=4, activeDeadlineSeconds=1),
        a_job("j23", "exit 1", backoffLimit=1),
    ]
