"""Objects that pods refer to, read from the API when they are needed: ConfigMaps, Secrets, claims, tokens. Made by the agent.

None stands for an object that is not there; other errors of the API are raised.
"""

import msgspec

from app.agent.clock import Clock
from app.client.api import Api
from app.kinds.auth.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.runtimeclass import RuntimeClass
from app.kinds.core.secret import Secret
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import ServiceAccountTokenProjection
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.machinery.base import O
from app.machinery.errors import ApiError


class ReferredObjects:
    """Reads what `Lookup` asks for."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api, self._clock = api, clock

    async def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return await self._read(f"/api/v1/namespaces/{namespace}/configmaps/{name}", ConfigMap)

    async def secret(self, namespace: str, name: str) -> Secret | None:
        return await self._read(f"/api/v1/namespaces/{namespace}/secrets/{name}", Secret)

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
        return await self._read(path, PersistentVolumeClaim)

    async def persistent_volume(self, _: str, name: str) -> PersistentVolume | None:
        return await self._read(f"/api/v1/persistentvolumes/{name}", PersistentVolume)

    async def runtime_class(self, name: str) -> RuntimeClass | None:
        return await self._read(f"/apis/node.k8s.io/v1/runtimeclasses/{name}", RuntimeClass)

    async def token(self, pod: Pod, asked: ServiceAccountTokenProjection) -> tuple[str, float]:
        meta, account = pod.metadata, pod.spec.service_account_name or "default"
        body = TokenRequest(
            spec=TokenRequestSpec(
                audiences=(asked.audience,) if asked.audience else (),
                expiration_seconds=asked.expiration_seconds,
                bound_object_ref=BoundObjectReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid),
            )
        )
        path = f"/api/v1/namespaces/{meta.namespace}/serviceaccounts/{account}/token"
        given = msgspec.json.decode(await self._api.request("POST", path, body), type=TokenRequest)
        ends_at = given.status.expiration_timestamp
        return given.status.token, (ends_at - self._clock.now()).total_seconds() if ends_at else 0

    async def _read(self, path: str, kind: type[O]) -> O | None:
        try:
            return await self._api.read(path, kind)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
