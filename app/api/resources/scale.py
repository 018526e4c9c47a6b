"""Scale: GET, PUT and PATCH of RESOURCE/NAME/scale, the numbers of replicas of a Deployment, a ReplicaSet or a custom
object. Called by `kubernetes`.

A Scale is made of the object and written back into it; it is stored nowhere.
"""

from typing import Annotated, Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.api.http import content
from app.api.http.content_negotiation import PATCH_BODIES, parse_patch_content_type
from app.api.http.query import patch_options, query_of, update_options
from app.api.http.response_shape import decode_as_kind
from app.api.resources import patch
from app.api.resources.field_manager import edit_options, writer
from app.api.resources.routes import RequestInfo
from app.kinds.apiextensions.custom_kind import value_at, with_value
from app.machinery.base import Int32, Kind, LabelSelector, Object, ObjectMeta, ScalePaths, Struct, at
from app.machinery.custom.custom_object import CustomObject
from app.machinery.decoding.decode import convert
from app.machinery.errors import ApiError, bad_request, invalid, unprocessable
from app.machinery.meta.metadata_validation import NEGATIVE
from app.machinery.object_codec import json_document_of
from app.machinery.selectors import format_selector
from app.registry.codec import decode
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry

_GROUP, _VERSION = "autoscaling", "autoscaling/v1"
_PATCHES = {media: form for media, form in PATCH_BODIES.items() if form != "apply-patch"}


class ScaleSpec(Struct):
    """The wanted number."""

    replicas: Annotated[Int32, at(1, "Wanted number of replicas.")] = 0


class ScaleStatus(Struct):
    """The number that there is."""

    replicas: Annotated[Int32, at(1, "Number of replicas that there are.", required=True)] = msgspec.field(
        default_factory=lambda: 0
    )
    selector: Annotated[str, at(2, "Label selector of the pods, as a text.")] = ""


class Scale(Object):
    """Wanted and actual number of replicas of an object."""

    spec: Annotated[ScaleSpec, at(2, "The wanted number.")] = ScaleSpec()
    status: Annotated[ScaleStatus, at(3, "The number that there is.")] = ScaleStatus()


_SCALE: Kind[Any] = Kind(type=Scale, group=_GROUP, version="v1", plural="scale")


async def answer(registry: Registry, request: Request, found: RequestInfo) -> Response:
    """Answer for the scale of an object."""
    kind = content.stored_kind(found.kind)
    if request.method == "GET":
        head = await objects.find_in_version(registry, kind, found.namespace or "", found.name)
        return _response(registry, request, found.kind, decode(kind, head))
    if request.method == "PUT":
        options = update_options(query_of(request))
        read = await content.read_struct(request, Scale, _VERSION, content.validation_of(options))
        sent = read.object

        def change(old: Object) -> Object:
            return _with_scale(found.kind, old, sent)

    else:
        options = patch_options(query_of(request), apply=False)
        form = parse_patch_content_type(request.headers.get("content-type"), _PATCHES)
        given = await content.read_document(request)

        def change(old: Object) -> Object:
            document = json_document_of(_scale_of(found.kind, old))
            made = patch.apply_patch(form, _SCALE, document, given)
            return _with_scale(found.kind, old, convert(made, Scale, api_version=_VERSION).object)

    by = edit_options(request, writer(registry, request, options, "scale"), options)
    made = await objects.edit(registry, kind, found.namespace or "", found.name, change, by)
    return _response(registry, request, found.kind, decode_as_kind(found.kind, made.body))


def _response(registry: Registry, request: Request, kind: Kind, obj: Object) -> Response:
    scale = json_document_of(_scale_of(kind, obj))
    return content.object_response(request, _SCALE, content.encode_document(scale), registry.now)


def _scale_of(kind: Kind, obj: Object) -> Scale:
    paths, content_ = _paths(kind), _content_of(obj)
    wanted = value_at(content_, paths.spec_replicas)
    if not isinstance(wanted, int):
        why = f'the spec replicas field ".{".".join(paths.spec_replicas)}" does not exist'
        raise ApiError(500, "InternalError", f"Internal error occurred: {why}")
    there, meta = value_at(content_, paths.status_replicas), obj.metadata
    return Scale(
        api_version=_VERSION,
        kind="Scale",
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=ScaleSpec(replicas=wanted),
        status=ScaleStatus(
            replicas=there if isinstance(there, int) else 0, selector=_format(value_at(content_, paths.selector))
        ),
    )


def _content_of(obj: Object) -> dict[str, Any]:
    return obj.content if isinstance(obj, CustomObject) else json_document_of(obj)


def _format(selector: Any) -> str:
    """A custom object has its selector as a text, others as a LabelSelector."""
    if isinstance(selector, dict):
        return format_selector(msgspec.convert(selector, LabelSelector))
    return selector if isinstance(selector, str) else ""


def _with_scale(kind: Kind, old: Object, sent: Scale) -> Object:
    """The object with the wanted number. What else a Scale tells is not written."""
    meta = sent.metadata
    if meta.name and meta.name != old.metadata.name:
        raise bad_request(
            f"the name of the object ({meta.name}) does not match the name on the URL ({old.metadata.name})"
        )
    if sent.spec.replicas < 0:
        cause = invalid("spec.replicas", sent.spec.replicas, NEGATIVE)
        raise unprocessable("Scale", _GROUP, old.metadata.name, [cause])
    content_ = with_value(_content_of(old), _paths(kind).spec_replicas, sent.spec.replicas)
    metadata = replace(old.metadata, resource_version=meta.resource_version)
    if isinstance(old, CustomObject):
        return replace(old, metadata=metadata, content=content_)
    scaled: Object = replace(convert(content_, kind.type, api_version=kind.api_version).object, metadata=metadata)
    return scaled


def _paths(kind: Kind) -> ScalePaths:
    if kind.scale is None:
        raise LookupError(f"{kind.resource} has no scale")
    return kind.scale
