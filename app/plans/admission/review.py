"""Review: what admission has to say about an object that it admits. A refusal is an `ApiError`, with the same annotations.

Made by `pod_security` and what else validates objects; the registry hands it on with its answer.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Review(NamedTuple):
    """Texts for Warning headers, and what an audit log should note, by key, as in an audit event's `annotations`."""

    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


NOTHING = Review()


def merge(reviews: Iterable[Review]) -> Review:
    """Return what several reviews say together."""
    said = [each for each in reviews if each is not NOTHING]
    if len(said) < 2:
        return said[0] if said else NOTHING
    annotations = {key: text for each in said for key, text in each.audit_annotations.items()}
    return Review(tuple(text for each in said for text in each.warnings), annotations)
