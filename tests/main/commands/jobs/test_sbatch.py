"""Scripts with `#SBATCH` lines, and the plain Jobs that they become."""

from typing import Any

import msgspec
import pytest

from app.kinds.batch.job import KIND, Job
from app.main.cli_errors import CommandError
from app.main.commands.jobs.manifests import read_manifest
from app.main.commands.jobs.sbatch import read_directives

SCRIPT = """#!/bin/bash -l
#SBATCH --job-name=sweep --cpus-per-task=4
#SBATCH --mem 8G   # of each task
#SBATCH --time=1-02:30:00
#SBATCH --array=0-99%10
##SBATCH --partition=gone
#SBATCH --dependency=afterok:prepare:fetch,afterany:probe

# a comment
python train.py --seed $SLURM_ARRAY_TASK_ID
#SBATCH --qos=too-late-as-for-sbatch
"""


def job_of(text: str, source: str = "train.sh") -> Job:
    (document,) = read_manifest(text, source)
    job: Job = KIND.prepare(msgspec.convert(document, Job))
    return job


def test_a_script_becomes_a_plain_job() -> None:
    job = job_of(SCRIPT)
    spec, pod = job.spec, job.spec.template.spec
    (container,) = pod.containers

    assert job.metadata.name == "sweep"
    assert job.metadata.annotations == {"jobplane.dev/after": "prepare:ok,fetch:ok,probe:any"}
    assert (spec.completion_mode, spec.completions, spec.parallelism) == ("Indexed", 100, 10)
    assert (pod.active_deadline_seconds, spec.active_deadline_seconds) == (26 * 3600 + 30 * 60, None)
    assert container.resources is not None
    assert container.resources.requests == {"cpu": "4", "memory": "8Gi"}
    assert container.resources.limits == {"memory": "8Gi"}
    assert [each.name for each in container.env][:1] == ["SLURM_ARRAY_TASK_ID"]
    assert container.command == ("/bin/bash", "-l", "-c", SCRIPT)


def test_a_script_without_such_lines_is_as_it_was() -> None:
    job = job_of("#!/bin/sh\necho hello\n")

    assert job.metadata.name.startswith("train-")
    assert (job.spec.completion_mode, job.metadata.annotations) == ("NonIndexed", {})
    assert job.spec.template.spec.containers[0].env == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--mem=4000", {"memory": "4000Mi"}),
        ("--mem=512M", {"memory": "512Mi"}),
        ("--mem=2gb", {"memory": "2Gi"}),
        ("-J pi -c 2", {"name": "pi", "cpus": "2"}),
        ("-a 0-3 -d afternotok:pi", {"array": "0-3", "after": ["pi:failed"]}),
        ('--job-name="pi"', {"name": "pi"}),
    ],
)
def test_a_line_sets(line: str, expected: dict[str, Any]) -> None:
    assert read_directives(f"#!/bin/sh\n#SBATCH {line}\n", "x").options == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * 60),
        ("90:30", 90 * 60 + 30),
        ("2:30:00", 9000),
        ("1-12", 36 * 3600),
        ("1-12:30", 36 * 3600 + 1800),
        ("0-0:0:7", 7),
        ("0", 0),
    ],
)
def test_a_time_is_read_as_by_slurm(text: str, seconds: int) -> None:
    assert read_directives(f"#!/bin/sh\n#SBATCH -t {text}\n", "x").seconds == seconds


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--partition=gpu", "x.sh line 2: #SBATCH --partition=gpu has no counterpart here: remove it. Known: --array,"),
        ("-o out.txt", "#SBATCH -o has no counterpart"),
        ("--mem-per-cpu=4G", "#SBATCH --mem-per-cpu=4G has no counterpart"),
        ("--time", "--time has no value"),
        ("--time=soon", "--time=soon is no time"),
        ("--mem=lots", "--mem=lots is no memory"),
        ("--mem=0", "--mem=0 is no memory"),
        (
            "--dependency=singleton",
            "--dependency=singleton is not understood: pass afterok:JOB, afternotok:JOB, afterany:JOB",
        ),
        ("--dependency=afterok", "is not understood"),
        ("--dependency=afterok:a?afterok:b", "--after a?afterok:ok"),
        ("--array=1-10", "indexes begin with 0: pass 0-9, and add 1 to the index"),
        ("--array=1,3,5", "--array 1,3,5 is no array"),
        ("--cpus-per-task=many", "--cpus many is no quantity"),
        ('--job-name="a', "line 2: No closing quotation"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(line: str, words: str) -> None:
    with pytest.raises(CommandError) as refused:
        read_manifest(f"#!/bin/sh\n#SBATCH {line}\ntrue\n", "x.sh")

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
