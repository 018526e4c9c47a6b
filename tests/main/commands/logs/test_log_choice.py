"""Which of the kept logs are printed."""

from typing import Any

from app.main.commands.logs.log_choice import Choice, choose, index_of_log, select


def log(pod: str, started: int, attempt: int = 0, container: str = "main", job: str = "sweep") -> dict[str, Any]:
    meta = {"name": pod, "uid": f"uid-{pod}", "namespace": "default"}
    return {
        "metadata": meta, "job": job, "container": container, "attempt": attempt, "startedAt": f"2026-03-04T14:00:{started:02}Z",
    }  # fmt: skip


ARRAY = [log("sweep-0-aaaaa", 1), log("sweep-10-bbbbb", 2), log("sweep-2-ccccc", 3), log("sweep-2-ddddd", 9)]
RETRIED = [log("once-1-aaaaa", 1, job="once-1"), log("once-1-bbbbb", 2, job="once-1")]


def test_of_an_array_the_newest_pod_of_each_index_in_order() -> None:
    assert choose(ARRAY, None, previous=False) == [
        Choice("sweep-0-aaaaa", {"uid": "uid-sweep-0-aaaaa"}, "[0] "),
        Choice("sweep-2-ddddd", {"uid": "uid-sweep-2-ddddd"}, "[2] "),
        Choice("sweep-10-bbbbb", {"uid": "uid-sweep-10-bbbbb"}, "[10] "),
    ]


def test_of_one_index_there_is_no_prefix() -> None:
    assert choose(select(ARRAY, None, 2), "main", previous=False) == [
        Choice("sweep-2-ddddd", {"container": "main", "uid": "uid-sweep-2-ddddd"})
    ]


def test_a_job_whose_name_ends_with_a_number_is_no_array() -> None:
    assert [index_of_log(each) for each in RETRIED] == [None, None]
    assert [each.pod for each in choose(RETRIED, None, previous=False)] == ["once-1-bbbbb"]


def test_previous_is_the_pod_before_or_the_run_before_in_a_pod_that_was_restarted() -> None:
    assert choose(RETRIED, None, previous=True) == [Choice("once-1-aaaaa", {"uid": "uid-once-1-aaaaa"})]
    restarted = [*RETRIED, log("once-1-bbbbb", 3, attempt=1, job="once-1")]
    assert choose(restarted, None, previous=True) == [
        Choice("once-1-bbbbb", {"previous": "true", "uid": "uid-once-1-bbbbb"})
    ]


def test_a_container_is_selected() -> None:
    assert select([log("a", 1), log("a", 1, container="side")], "side", None) == [log("a", 1, container="side")]
