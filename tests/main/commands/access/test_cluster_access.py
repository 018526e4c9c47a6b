"""Refusals of the API, in one line that says what to do."""

import pytest

from app.machinery.errors import ApiError
from app.main.commands.access.cluster_access import explain_refusal
from app.main.commands.access.kubeconfig import Access

FILE = Access(server="https://api:6443", source="/home/me/.kube/config")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ApiError(401, "Unauthorized", "Unauthorized"),
            "Unauthorized: the token in /home/me/.kube/config is not valid, or has ended: ask for a new one (`jobplane token`)",
        ),
        (
            ApiError(404, "NotFound", 'jobs.batch "x" not found'),
            'jobs.batch "x" not found: `jobplane list` lists the Jobs of a namespace, -n names another namespace',
        ),
        (
            ApiError(409, "AlreadyExists", 'jobs.batch "x" already exists'),
            'jobs.batch "x" already exists: pass another --name, or `jobplane cancel` it first',
        ),
        (ApiError(403, "Forbidden", "bob cannot list jobs"), "bob cannot list jobs"),
    ],
)
def test_a_refusal_says_what_to_do(error: ApiError, words: str) -> None:
    assert explain_refusal(error, FILE) == words
    assert "--token-file" in explain_refusal(
        ApiError(401, "Unauthorized", "Unauthorized"), Access(server="https://api")
    )
