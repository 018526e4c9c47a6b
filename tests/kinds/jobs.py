"""Jobs for tests, in the words of a manifest: valid, but for what the test is about."""

from datetime import UTC, datetime

from msgspec import convert

from app.kinds.batch.job import KIND, Job

NOW = datetime(2026, 7, 24, 12, 0, 0, tzinfo=UTC)
UID = "uid-of-pi"
REQUIRED = "FieldValueRequired"


def written(spec=None, pod=None, labels=None, metadata=None, status=None) -> Job:
    """A Job as a client writes it; `labels` and `pod` are those of its template."""
    template = {
        "metadata": {"labels": labels or {}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}], **(pod or {})},
    }
    return convert(
        {
            "metadata": {"name": "pi", "namespace": "default", "uid": UID, **(metadata or {})},
            "spec": {"template": template, **(spec or {})},
            "status": status or {},
        },
        Job,
    )


def created(*args, **parts) -> Job:
    return KIND.on_create(KIND.prepare(written(*args, **parts)), NOW)


def stored(status=None, **parts) -> Job:
    """A created Job that its controller has written a status to."""
    return KIND.on_update(created(**parts), written(status=status))
