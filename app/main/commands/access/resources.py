"""Kinds by the names that people type, their paths, and lists of them page by page. Used by `list`, `get`, `submit`, `cancel`."""

from typing import TYPE_CHECKING, Any, NamedTuple

from app.main.cli_errors import CommandError

if TYPE_CHECKING:
    from app.client.api import Api

PAGE = 500
NOT_FOUND = 404
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Resource(NamedTuple):
    """A kind's place in the API."""

    group: str  # api/v1, apis/batch/v1
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of an object, or of a list; an empty namespace means all."""
        place = f"/namespaces/{namespace}" if self.is_namespaced and namespace else ""
        return f"/{self.group}{place}/{self.plural}" + (f"/{name}" if name else "")


JOBS = Resource("apis/batch/v1", "jobs")
_RESOURCES = (
    JOBS,
    Resource("apis/batch/v1", "cronjobs"),
    Resource("api/v1", "pods"),
    Resource("api/v1", "nodes", is_namespaced=False),
    Resource("api/v1", "events"),
    Resource("api/v1", "namespaces", is_namespaced=False),
    Resource("api/v1", "configmaps"),
    Resource("api/v1", "secrets"),
    Resource("apis/jobplane.dev/v1", "localqueues"),
)
_NAMES = {name: each for each in _RESOURCES for name in (each.plural, each.plural.removesuffix("s"))}
_NAMES |= {"queue": _NAMES["localqueue"], "queues": _NAMES["localqueue"], "cj": _NAMES["cronjob"]}
KINDS = ", ".join(each.plural for each in _RESOURCES)


def find_resource(name: str) -> Resource:
    """Find a kind by its name; CommandError for one that is not known."""
    found = _NAMES.get(name.lower())
    if found is None:
        raise CommandError(f"{name} is no kind that this command knows: pass one of {KINDS}")
    return found


def parse_name(text: str) -> tuple[Resource, str]:
    """Parse NAME, which is a Job's, or KIND/NAME."""
    kind, _, name = text.rpartition("/")
    return (find_resource(kind) if kind else JOBS), name


async def find_by_kind(api: "Api", api_version: str, kind: str) -> Resource:
    """Ask the API for the place of a kind, as a manifest names it. CommandError for one that it does not serve."""
    from app.machinery.errors import ApiError

    group = f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"
    try:
        found = (await api.request_json("GET", f"/{group}"))["resources"]
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise
        found = []
    for each in found:
        if each["kind"] == kind and "/" not in each["name"]:
            return Resource(group, each["name"], each["namespaced"])
    raise CommandError(f"the API serves no {kind} of {api_version}: check apiVersion and kind")


async def list_all(api: "Api", path: str, query: dict[str, str]) -> list[dict[str, Any]]:
    """Read a list, page by page."""
    found: list[dict[str, Any]] = []
    place: dict[str, str] = {}
    while True:
        page = await api.request_json("GET", path, params={"limit": str(PAGE), **query, **place})
        found += page["items"]
        token = page["metadata"].get("continue")
        if not token:
            return found
        place = {"continue": token}


async def read_table(api: "Api", path: str, query: dict[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read a list as the server lays it out for kubectl: its columns and its rows."""
    columns: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    place: dict[str, str] = {}
    while True:
        params = {"limit": str(PAGE), **query, **place}
        page = await api.request_json("GET", path, params=params, accept=TABLE)
        columns = columns or page["columnDefinitions"]
        rows += page.get("rows") or ()
        token = page["metadata"].get("continue")
        if not token:
            return columns, rows
        place = {"continue": token}
