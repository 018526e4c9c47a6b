"""Pod annotations: what users ask of a node beyond Kubernetes' fields.

A Job's pods get them from their Job (`app.kinds.batch.job_annotations` validates them there); plans of the node read them. On a
pod that a client creates, an invalid value counts as none.
"""

from app.machinery.base import ObjectMeta
from app.machinery.durations import parse_seconds

MAIN_CONTAINER = "jobplane.dev/main-container"
START_TIMEOUT = "jobplane.dev/start-timeout"


def main_container(metadata: ObjectMeta) -> str:
    """Return the name of the container that decides for the pod; empty if all of them do."""
    return metadata.annotations.get(MAIN_CONTAINER, "")


def start_timeout(metadata: ObjectMeta) -> int | None:
    """Return the seconds within which all containers must have started; None without such a demand."""
    text = metadata.annotations.get(START_TIMEOUT)
    if text is None:
        return None
    try:
        return parse_seconds(text)
    except ValueError:
        return None
