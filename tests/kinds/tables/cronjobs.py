"""CronJobs that are refused, on create and, where there is something `before`, on update. `job`: the spec of their Jobs."""

from typing import Any

from msgspec import convert

from app.kinds.batch.cronjob import CronJob
from tests.kinds.tables import NEGATIVE, Row, Table, invalid, row

JOB = "spec.jobTemplate.spec"
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
_NOT_EXPLICIT = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
_NO_ZONE = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
_TWO_ZONES = "cannot use both timeZone field and TZ or CRON_TZ in schedule"


def manifest(spec: dict[str, Any] | None = None, job: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Every night, unless told otherwise."""
    template = {"spec": {"template": {"spec": POD}, **(job or {})}}
    whole = {"schedule": "30 3 * * *", "jobTemplate": template, **(spec or {})}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", **metadata}, "spec": whole}


def written(**parts: Any) -> CronJob:
    return convert(manifest(**parts), CronJob)


def spec(field: str, message: str, **fields: Any) -> Row:
    return row(f"spec.{field}", message, spec=fields)


def _schedule(text: str, why: str) -> Row:
    """Uncertain in the reference: why exactly. These are the words of the parser that Kubernetes uses."""
    return spec("schedule", invalid(f'"{text}"', why), schedule=text)


def _zone(text: str, why: str) -> Row:
    return spec("timeZone", invalid(f'"{text}"', why), timeZone=text)


def _job(field: str, message: str, **fields: Any) -> Row:
    return row(f"{JOB}.{field}", message, job=fields)


def _pod(message: str, policy: str) -> Row:
    return _job("template.spec.restartPolicy", message, template={"spec": POD | {"restartPolicy": policy}})


CRON_JOBS: Table = {
    "the name leaves no room for its Jobs'": row(
        "metadata.name", invalid(f'"{53 * "n"}"', "must be no more than 52 characters"), name=53 * "n"
    ),
    "there is no schedule": spec("schedule", "Required value", schedule=""),
    "the schedule is too short": _schedule("a b c", "expected exactly 5 fields, found 3: [a b c]"),
    "the schedule has a minute 60": _schedule("60 * * * *", "end of range (60) above maximum (59): 60"),
    "the schedule has a day 7": _schedule("0 0 * * 7", "end of range (7) above maximum (6): 7"),
    "the schedule has letters": _schedule(
        "x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'
    ),
    "the schedule has an unknown macro": _schedule("@often", "unrecognized descriptor: @often"),
    "the schedule names a zone": _schedule("TZ=UTC 0 * * * *", _NO_ZONE),
    "the schedule names a zone in more letters": _schedule("CRON_TZ=UTC 0 * * * *", _NO_ZONE),
    "the zone is empty": _zone("", "timeZone must be nil or non-empty string"),
    **{
        f"the zone is {zone}": _zone(zone, f"unknown time zone {zone}")
        for zone in ("Mars/../Olympus", "./UTC", "-Mars", "Mars//Olympus", "MoreThan14Chars/X", "Mars Olympus")
    },
    "the zone is the server's own": _zone("Local", _NOT_EXPLICIT),
    "the zone is the server's own in small letters": row(
        "spec.timeZone",
        invalid('"local"', _NOT_EXPLICIT),
        ("spec.timeZone", invalid('"local"', "unknown time zone local")),
        spec={"timeZone": "local"},
    ),
    "nobody knows the zone": _zone("Mars/Olympus", "unknown time zone Mars/Olympus"),
    **{
        f"{field} is negative": spec(field, NEGATIVE, **{field: -1})
        for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    },
    "the policy is unknown": spec(
        "concurrencyPolicy",
        'Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"',
        concurrencyPolicy="Maybe",
    ),
    "a Job would be refused": _job("parallelism", NEGATIVE, parallelism=-1),
    "a Job would have no completions": _job(
        "completions", "Required value: when completion mode is Indexed", completionMode="Indexed"
    ),
    "a Job would fail by rules without action": _job(
        "podFailurePolicy.rules[0]",
        "Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        podFailurePolicy={"rules": [{"action": "Count"}]},
    ),
    "pods never end": _pod('Required value: valid values: "OnFailure", "Never"', "Always"),
    "Jobs have a selector": _job(
        "selector",
        invalid('{"matchLabels":{"app":"pi"}}', "`selector` will be auto-generated"),
        selector={"matchLabels": {"app": "pi"}},
    ),
    "Jobs have selectors by hand": _job(
        "manualSelector", 'Unsupported value: true: supported values: "nil", "false"', manualSelector=True
    ),
}

_OLD = {"schedule": "TZ=UTC 0 * * * *"}

# What is stored here was accepted by other rules than today's.
CRON_JOB_UPDATES: Table = {
    "a zone comes into the schedule": row(
        "spec.schedule", invalid('"TZ=UTC 0 * * * *"', _NO_ZONE), spec=_OLD, before={"spec": {}}
    ),
    "a zone in the schedule gets company": row(
        "spec.schedule",
        invalid('"TZ=UTC 0 * * * *"', _TWO_ZONES),
        spec=_OLD | {"timeZone": "UTC"},
        before={"spec": _OLD},
    ),
    "a zone that nobody knows comes": row(
        "spec.timeZone",
        invalid('"Mars/Olympus"', "unknown time zone Mars/Olympus"),
        spec={"timeZone": "Mars/Olympus"},
        before={"spec": {"timeZone": "UTC"}},
    ),
    "the schedule becomes unreadable": row(
        "spec.schedule",
        invalid('"a b c"', "expected exactly 5 fields, found 3: [a b c]"),
        spec={"schedule": "a b c"},
        before={"spec": {}},
    ),
}
