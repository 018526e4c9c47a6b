"""The Job that `jobplane run` makes of its options."""

from typing import Any

import msgspec
import pytest

from app.kinds.batch.job import KIND, Job
from app.main.cli_errors import CommandError
from app.main.commands.jobs.job_template import Array, RunOptions, make_job, make_name, parse_array


def made(**options: Any) -> dict[str, Any]:
    return make_job(RunOptions(**{"name": "x", "command": ("true",), **options}), {"HOME": "/home/me"})


def container(**options: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(**options)["spec"]["template"]["spec"]["containers"][0]
    return found


def test_a_command_alone_is_a_job_of_one_attempt() -> None:
    assert made() == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "none", "command": ["true"]}],
                }
            },
        },
    }


def test_an_image_without_a_command_runs_its_own() -> None:
    assert container(image="a/b:1", command=()) == {"name": "main", "image": "a/b:1"}


def test_every_option_makes_a_job_that_the_api_takes() -> None:
    everything = RunOptions(
        "i", ("true",), "x", "0-99%10", "2", "4Gi", 1, ("A=b=c", "HOME"), ("a", "b:any"), 3, "15m", ("team=vision",), "q",
        "high", "/srv", "1h",
    )  # fmt: skip
    job = KIND.prepare(msgspec.convert(make_job(everything, {"HOME": "/home/me"}), Job))
    spec, pod = job.spec, job.spec.template.spec
    assert (spec.completions, spec.parallelism, spec.completion_mode) == (100, 10, "Indexed")
    assert (spec.backoff_limit_per_index, spec.active_deadline_seconds, spec.ttl_seconds_after_finished) == (
        3,
        900,
        3600,
    )
    assert job.metadata.labels == {"team": "vision", "kueue.x-k8s.io/queue-name": "q"}
    assert job.metadata.annotations == {"jobplane.dev/after": "a,b:any"}
    assert (pod.priority_class_name, pod.containers[0].working_dir) == ("high", "/srv")
    assert [(each.name, each.value) for each in pod.containers[0].env] == [("A", "b=c"), ("HOME", "/home/me")]
    resources = pod.containers[0].resources
    assert resources is not None
    assert resources.requests == {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    assert resources.limits == {"memory": "4Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("0-99%10", Array(100, 10)),
        ("0-99", Array(100, 100)),
        ("100%7", Array(100, 7)),
        ("5", Array(5, 5)),
        ("0-0", Array(1, 1)),
        ("0-3%50", Array(4, 4)),
    ],
)
def test_arrays(text: str, array: Array) -> None:
    assert parse_array(text) == array


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"array": "1-10"}, "--array 1-10: indexes begin with 0: pass 0-9, and add 1 to the index in the command"),
        ({"array": "a"}, "--array a is no array: pass one such as 0-99, 0-99%10 (ten at a time) or 100"),
        ({"array": "0"}, "--array 0 runs nothing: pass at least one index, and at least one at a time"),
        ({"array": "9%0"}, "--array 9%0 runs nothing: pass at least one index, and at least one at a time"),
        ({"cpus": "two"}, "--cpus two is no quantity: pass one such as 2, 500m or 1.5 (CPUs), 512Mi or 4Gi (memory)"),
        ({"memory": "0"}, "--memory 0 is no quantity: pass one such as 2, 500m or 1.5 (CPUs), 512Mi or 4Gi (memory)"),
        ({"timeout": "soon"}, "--timeout soon is not a duration: pass one such as 90s, 15m or 8h"),
        ({"env": ("NOT_SET",)}, "--env NOT_SET is not set here: pass NOT_SET=VALUE"),
        ({"labels": ("team",)}, "--label team has no value: pass NAME=VALUE"),
        ({"after": ("a:soon",)}, "--after a:soon: pass the name of a Job, or NAME:ok, NAME:failed or NAME:any"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError) as refused:
        made(**options)
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("image", "command", "base"),
    [
        ("", ("/usr/bin/Python3.11", "x"), "python3-11"),
        ("registry:5000/a/trainer:1.0@sha256:0", (), "trainer"),
        ("", ("...",), "job"),
        ("", ("x" * 80,), "x" * 46),
    ],
)
def test_a_name_is_made_of_the_program_or_the_image(image: str, command: tuple[str, ...], base: str) -> None:
    name, again = make_name(image, command), make_name(image, command)
    assert name.rpartition("-")[0] == base
    assert len(name) <= 52
    assert name != again
