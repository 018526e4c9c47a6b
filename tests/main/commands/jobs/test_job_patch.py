"""Edits of a rerun become a patch that Kubernetes' rules of merging apply."""

import pytest

from app.main.cli_errors import CommandError
from app.main.commands.jobs.job_patch import make_patch


def test_edits_of_the_container_and_of_the_job() -> None:
    edits = [
        "image=x:2",
        "memory=8Gi",
        "env.LR=0.1",
        "env.SEED=1",
        "retries=3",
        "timeout=1h",
        "cpus=2",
        "command=echo a=b",
    ]
    assert make_patch(edits, "main") == {
        "spec": {
            "backoffLimit": 3,
            "activeDeadlineSeconds": 3600,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "x:2",
                            "command": ["sh", "-c", "echo a=b"],
                            "env": [{"name": "LR", "value": "0.1"}, {"name": "SEED", "value": "1"}],
                            "resources": {"requests": {"memory": "8Gi", "cpu": "2"}, "limits": {"memory": "8Gi"}},
                        }
                    ]
                }
            },
        }
    }


def test_any_path_is_read_as_json_else_as_text() -> None:
    edits = ["spec.backoffLimit=3", 'spec.template.spec.nodeSelector={"disk": "ssd"}', "metadata.labels.team=vision"]
    assert make_patch(edits, "main") == {
        "spec": {"backoffLimit": 3, "template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
        "metadata": {"labels": {"team": "vision"}},
    }


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("memory", "--set memory has no value: pass FIELD=VALUE"),
        ("retries=many", "--set retries=many is no number"),
        ("timeout=soon", "--set timeout=soon is not a duration"),
        ("colour=red", "--set colour: pass one of image, command,"),
    ],
)
def test_a_wrong_edit_is_refused(edit: str, words: str) -> None:
    with pytest.raises(CommandError) as refused:
        make_patch([edit], "main")
    assert str(refused.value).startswith(words)
