"""OpenAPI schemas of answers that are no objects: statuses, watch events, discovery.

`app.api.openapi.schemas` describes these structs under Kubernetes' names; the answers themselves are written elsewhere.
"""

from typing import Annotated, Any

import msgspec

from app.machinery.base import Int32, Int64, Struct, at


class ListMeta(Struct):
    """What a list says about itself."""

    self_link: Annotated[str, at(1, "Obsolete, never set.")] = ""
    resource_version: Annotated[str, at(2, "The version that the list shows; a watch from it misses nothing.")] = ""
    continue_: Annotated[str, at(3, "Token for the next page, if there is one.")] = ""
    remaining_item_count: Annotated[Int64 | None, at(4, "How many objects follow this page, if known.")] = None


class StatusCause(Struct):
    """One of the reasons in a refusal."""

    reason: Annotated[str, at(1, "One word for the reason.")] = ""
    message: Annotated[str, at(2, "A sentence for people.")] = ""
    field: Annotated[str, at(3, "The field meant.")] = ""


class StatusDetails(Struct):
    """What a refusal is about."""

    name: Annotated[str, at(1, "Name of the object.")] = ""
    group: Annotated[str, at(2, "Group of the object.")] = ""
    kind: Annotated[str, at(3, "Resource or kind of the object.")] = ""
    causes: Annotated[tuple[StatusCause, ...], at(4, "All reasons.")] = ()
    retry_after_seconds: Annotated[Int32, at(5, "When to try again.")] = 0
    uid: Annotated[str, at(6, "UID of the object.")] = ""


class Status(Struct):
    """The outcome of a request that returns no object."""

    api_version: Annotated[str, at(0, "v1.")] = ""
    kind: Annotated[str, at(0, "Status.")] = ""
    metadata: Annotated[ListMeta, at(1, "Empty.")] = msgspec.field(default_factory=ListMeta)
    status: Annotated[str, at(2, "Success or Failure.")] = ""
    message: Annotated[str, at(3, "A sentence for people.")] = ""
    reason: Annotated[str, at(4, "One word for the reason.")] = ""
    details: Annotated[StatusDetails | None, at(5, "What it is about.", list_type="atomic")] = None
    code: Annotated[Int32, at(6, "The HTTP status.")] = 0


class WatchEvent(Struct):
    """One change in a watch's stream."""

    type: Annotated[str, at(1, "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.", required=True)] = ""
    object: Annotated[
        Any, at(2, "The object as it is now; of a deletion, as it was last; of an ERROR, a Status.", required=True)
    ] = None


class PodLogOptions(Struct):
    """Which part of a container's log, and whether to wait for more."""

    container: Annotated[str, at(1, "The container; needed where the pod has several.")] = ""
    follow: Annotated[bool, at(2, "Go on until the container has ended.")] = False
    previous: Annotated[bool, at(3, "The run before the last restart.")] = False
    since_seconds: Annotated[Int64 | None, at(4, "Only lines of the last so many seconds.")] = None
    since_time: Annotated[str, at(5, "Only lines from this moment on, in RFC 3339.")] = ""
    timestamps: Annotated[bool, at(6, "Begin each line with its time.")] = False
    tail_lines: Annotated[Int64 | None, at(7, "Only so many lines from the end.")] = None
    limit_bytes: Annotated[Int64 | None, at(8, "At most so many bytes.")] = None
    insecure_skip_tls_verify_backend: Annotated[bool, at(9, "Accepted; there is nothing to skip.")] = msgspec.field(
        default=False, name="insecureSkipTLSVerifyBackend"
    )
    stream: Annotated[str, at(10, "All, Stdout or Stderr.")] = ""


class APIResource(Struct):
    """A resource or a part of one: what it is called and what can be done with it."""

    name: Annotated[str, at(1, "Plural name; of a part, resource/part.", required=True)] = ""
    singular_name: Annotated[str, at(6, "Singular name.", required=True)] = ""
    namespaced: Annotated[bool, at(2, "Whether its objects live in namespaces.", required=True)] = False
    group: Annotated[str, at(8, "Group of what is sent and returned, if not the list's.")] = ""
    version: Annotated[str, at(9, "Version of what is sent and returned, if not the list's.")] = ""
    kind: Annotated[str, at(3, "Kind of what is sent and returned.", required=True)] = ""
    verbs: Annotated[tuple[str, ...], at(4, "What can be done with it.", required=True)] = ()
    short_names: Annotated[tuple[str, ...], at(5, "Abbreviations that kubectl takes.", list_type="atomic")] = ()
    categories: Annotated[tuple[str, ...], at(7, "Groups of resources such as all.", list_type="atomic")] = ()
    storage_version_hash: Annotated[str, at(10, "Changes when the stored form does. Opaque.")] = ""


class APIResourceList(Struct):
    """The resources of one group and version."""

    api_version: Annotated[str, at(0, "v1.")] = ""
    kind: Annotated[str, at(0, "APIResourceList.")] = ""
    group_version: Annotated[str, at(1, "The group and version.", required=True)] = ""
    resources: Annotated[tuple[APIResource, ...], at(2, "The resources.", required=True, list_type="atomic")] = ()


class GroupVersionForDiscovery(Struct):
    """A version of a group."""

    group_version: Annotated[str, at(1, "Group and version, as apiVersion has them.", required=True)] = ""
    version: Annotated[str, at(2, "The version alone.", required=True)] = ""


class ServerAddressByClientCIDR(Struct):
    """Where clients of a network find the server."""

    client_cidr: Annotated[str, at(1, "The clients' network.", required=True)] = ""
    server_address: Annotated[str, at(2, "The server's address.", required=True)] = ""


class APIGroup(Struct):
    """A group and its versions."""

    api_version: Annotated[str, at(0, "v1.")] = ""
    kind: Annotated[str, at(0, "APIGroup.")] = ""
    name: Annotated[str, at(1, "Name of the group.", required=True)] = ""
    versions: Annotated[
        tuple[GroupVersionForDiscovery, ...], at(2, "All versions.", required=True, list_type="atomic")
    ] = ()
    preferred_version: Annotated[GroupVersionForDiscovery | None, at(3, "The version to use by default.")] = None
    server_address_by_client_cidrs: Annotated[
        tuple[ServerAddressByClientCIDR, ...], at(4, "Where to find the server.", list_type="atomic")
    ] = msgspec.field(default=(), name="serverAddressByClientCIDRs")


class APIGroupList(Struct):
    """All groups but the core group."""

    api_version: Annotated[str, at(0, "v1.")] = ""
    kind: Annotated[str, at(0, "APIGroupList.")] = ""
    groups: Annotated[tuple[APIGroup, ...], at(1, "The groups.", required=True, list_type="atomic")] = ()


class APIVersions(Struct):
    """The versions of the core group."""

    api_version: Annotated[str, at(0, "v1.")] = ""
    kind: Annotated[str, at(0, "APIVersions.")] = ""
    versions: Annotated[tuple[str, ...], at(1, "The versions.", required=True, list_type="atomic")] = ()
    server_address_by_client_cidrs: Annotated[
        tuple[ServerAddressByClientCIDR, ...], at(2, "Where to find the server.", required=True, list_type="atomic")
    ] = msgspec.field(default=(), name="serverAddressByClientCIDRs")


class Info(Struct):
    """Which Kubernetes the server is like, and what it was built from."""

    major: Annotated[str, at(0, "First number of the Kubernetes version.", required=True)] = ""
    minor: Annotated[str, at(0, "Second number of the Kubernetes version.", required=True)] = ""
    git_version: Annotated[str, at(0, "The whole version, with Jobplane's own.", required=True)] = ""
    git_commit: Annotated[str, at(0, "The commit it was built from, if known.", required=True)] = ""
    git_tree_state: Annotated[str, at(0, "Whether the tree was clean.", required=True)] = ""
    build_date: Annotated[str, at(0, "When it was built, if known.", required=True)] = ""
    go_version: Annotated[str, at(0, "There for clients that expect it.", required=True)] = ""
    compiler: Annotated[str, at(0, "What runs it.", required=True)] = ""
    platform: Annotated[str, at(0, "Operating system and processor.", required=True)] = ""


NAMED_ALONE = (Status, APIResourceList, APIGroup, APIGroupList, APIVersions)
"""What a client may meet as a document of its own: with a group, version and kind."""
