"""Endpoints for the encryption of Secrets at rest: which data keys there are, rotation, decryption. For administrators.

Under /apis/agents.jobplane.dev/v1/datakeys; `jobplane secrets` calls them. No key is ever in an answer.
"""

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, params

from app.api.auth.token_list import API_VERSION
from app.api.dependencies import RegistryDep, Requires
from app.api.middleware import AGENTS
from app.api.openapi.meta import ListMeta
from app.api.routers.join import SmallBody
from app.api.struct_route import StructRoute
from app.client.protocol import GROUP
from app.machinery.base import Struct, wire_name

router = APIRouter(prefix=AGENTS.rstrip("/"), tags=["encryption"], route_class=StructRoute)


def _may(verb: str) -> list[params.Depends]:
    return [Depends(Requires(verb, GROUP, "datakeys"))]


class DataKey(msgspec.Struct, kw_only=True, omit_defaults=True, rename=wire_name):
    """A data key, or plain text (without a `name`), and how many versions of Secrets are stored so.

    masterKey: name of the master key that wraps it; empty if Secrets are plain text from `activeAt` on.
    """

    name: str = ""
    master_key: str = ""
    created_at: datetime | None = None
    active_at: datetime | None = None
    versions: int


class DataKeyList(msgspec.Struct, tag_field="kind", tag="DataKeyList", kw_only=True, rename=wire_name):
    """All data keys, the oldest first; the last that is active encrypts."""

    api_version: str = API_VERSION
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[DataKey]


class Rotation(Struct):
    """The body of POST datakeys: it has no fields."""


@router.get("/datakeys", summary="List data keys", dependencies=_may("list"))
async def list_data_keys(registry: RegistryDep) -> DataKeyList:
    items = [
        DataKey(name=id_, master_key=master, created_at=created, active_at=active, versions=versions)
        for id_, master, created, active, versions in await registry.data_keys()
    ]
    return DataKeyList(items=items)


@router.post("/datakeys", status_code=201, summary="Rotate the data key", dependencies=_may("create"))
async def rotate_data_key(registry: RegistryDep, _: Annotated[Rotation, Depends(SmallBody(Rotation))]) -> DataKeyList:
    """Make a new data key, wrap all under the newest master key, and encrypt all Secrets anew in the background."""
    await registry.rotate_data_keys()
    return await list_data_keys(registry)


@router.delete("/datakeys", summary="Decrypt Secrets", dependencies=_may("delete"))
async def decrypt_secrets(registry: RegistryDep) -> DataKeyList:
    """Store Secrets as plain text again: in the background, all of them."""
    await registry.decrypt_secrets()
    return await list_data_keys(registry)
