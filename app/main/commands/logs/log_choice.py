"""Choice among the kept logs of a pod or Job: one, or one of each index of an array. Pure; called by `logs`."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KeptLog = dict[str, Any]  # an item of a KeptLogList
_INDEXED = re.compile(r"(\d+)-[a-z0-9]{5}")  # what follows the Job's name in the name of a pod of an Indexed Job


@dataclass(frozen=True)
class Following:
    """Part of a log to follow: index, container, and the query's options, such as tailLines."""

    index: int | None = None
    container: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


WHOLE = Following()


class Choice(NamedTuple):
    """One log to print: its pod, what the query must say beside, and what each line begins with."""

    pod: str
    query: dict[str, str]
    prefix: str = ""


def index_of_log(log: KeptLog) -> int | None:
    """Return the completion index of the pod, which is in its name."""
    found = _INDEXED.fullmatch(log["metadata"]["name"].removeprefix(f"{log.get('job', '')}-"))
    return int(found[1]) if found else None


def select(logs: Iterable[KeptLog], container: str | None, index: int | None) -> list[KeptLog]:
    """Return the logs of a container and of an index, where these are given."""
    return [
        log
        for log in logs
        if (container is None or log["container"] == container) and (index is None or index_of_log(log) == index)
    ]


def choose(logs: Sequence[KeptLog], container: str | None, *, previous: bool) -> list[Choice]:
    """Choose the newest pod, or the newest of each index if there are several; `previous`: the run before that.

    The run before is that of the container, if it was restarted in its pod, else that of the pod before.
    """
    groups: dict[int | None, list[KeptLog]] = defaultdict(list)
    for log in logs:
        groups[index_of_log(log)].append(log)
    is_array = len(groups) > 1
    return [
        _choose_one(groups[index], container, f"[{index}] " if is_array else "", previous=previous)
        for index in sorted(groups, key=lambda index: -1 if index is None else index)
    ]


def _choose_one(logs: Sequence[KeptLog], container: str | None, prefix: str, *, previous: bool) -> Choice:
    newest = max(logs, key=lambda log: log["startedAt"])
    others = [log for log in logs if log["metadata"]["uid"] != newest["metadata"]["uid"]]
    was_restarted = any(log["attempt"] for log in logs if log["metadata"]["uid"] == newest["metadata"]["uid"])
    query = {"container": container} if container else {}
    if previous and others and not was_restarted:
        newest = max(others, key=lambda log: log["startedAt"])
    elif previous:
        query["previous"] = "true"
    return Choice(newest["metadata"]["name"], {**query, "uid": newest["metadata"]["uid"]}, prefix)
