"""Records of Jobs, which outlive them: read from the API of the group `history.jobplane.dev`. Used by `history` and `rerun`."""

from typing import TYPE_CHECKING, Any

import msgspec

from app.kinds.batch.job import Job
from app.machinery.errors import ApiError
from app.main.cli_errors import CommandError
from app.plans.jobs.job_record import JobRecord

if TYPE_CHECKING:
    from app.client.api import Api

GROUP = "apis/history.jobplane.dev/v1"
NOT_FOUND = 404


def job_of(record: JobRecord) -> Job:
    """Return the Job as it was at last."""
    metadata = msgspec.to_builtins(record.metadata)
    return msgspec.convert({"metadata": metadata, "spec": record.spec, "status": record.status}, Job)


def records_path(namespace: str, uid: str = "") -> str:
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/{GROUP}{place}/jobs" + (f"/{uid}" if uid else "")


async def list_records(api: "Api", namespace: str, query: dict[str, str], limit: int) -> list[dict[str, Any]]:
    """Read the newest records, page by page, up to `limit`."""
    found: list[dict[str, Any]] = []
    place: dict[str, str] = {}
    while len(found) < limit:
        params = {"limit": str(min(limit - len(found), 500)), **query, **place}
        page = await api.request_json("GET", records_path(namespace), params=params)
        found += page["items"]
        token = page["metadata"].get("continue")
        if not token:
            break
        place = {"continue": token}
    return found


async def find_uid(api: "Api", namespace: str, name: str) -> str:
    """Return the UID of the newest Job of that name, there or gone; a UID stands for itself."""
    try:
        return str((await api.request_json("GET", records_path(namespace, name)))["metadata"]["uid"])
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise
        raise CommandError(
            f"no Job {name} in namespace {namespace}, nor a record of one: `jobplane history` lists them"
        ) from error
