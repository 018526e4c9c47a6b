"""Content of configMap, secret, downwardAPI and projected volumes, and service account tokens. Called by `volumes`."""

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from app.agent.clock import Clock
from app.agent.pods.environment import ContainerConfigError, Lookup, field, resource
from app.agent.volumes.files import File
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    KeyToPath,
    ProjectedVolumeSource,
    SecretProjection,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)

FILE_MODE, PRIVATE_MODE = 0o644, 0o600
TOKEN_USED = 0.8  # of a token's life; then a new one is requested
TOKEN_LONGEST = 24 * 3600.0


def holds_files(volume: Volume) -> bool:
    return any((volume.config_map, volume.secret, volume.downward_api, volume.projected))


def fs_group(pod: Pod) -> int | None:
    """The group that the pod's volumes are given to. An agent that is not root gives nothing away."""
    context = pod.spec.security_context
    return context.fs_group if context and os.geteuid() == 0 else None


def fs_user(pod: Pod) -> int | None:
    """The user that all containers run as, if it is set and one for all."""
    context = pod.spec.security_context
    usual = context.run_as_user if context else None
    users = {
        each.security_context.run_as_user
        if each.security_context and each.security_context.run_as_user is not None
        else usual
        for each in (*pod.spec.init_containers, *pod.spec.containers)
    }
    return users.pop() if len(users) == 1 else None


class _CachedToken(NamedTuple):
    token: str
    until: float


class ServiceAccountTokens:
    """Tokens of pods' service accounts, by pod and file. In memory only: a restarted agent requests new ones."""

    def __init__(self, lookup: Lookup, clock: Clock) -> None:
        self._lookup, self._clock = lookup, clock
        self._tokens: dict[tuple[str, str, str], _CachedToken] = {}

    async def token(self, pod: Pod, volume: str, asked: ServiceAccountTokenProjection) -> str:
        key = (pod.metadata.uid, volume, asked.path)
        known = self._tokens.get(key)
        if known is None or known.until <= self._clock.elapsed():
            began = self._clock.elapsed()
            token, seconds = await self._lookup.token(pod, asked)
            known = self._tokens[key] = _CachedToken(token, began + min(seconds * TOKEN_USED, TOKEN_LONGEST))
        return known.token

    def forget(self, uid: str) -> None:
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]


class VolumeSources:
    """`ip` is the node's."""

    def __init__(self, ip: str, lookup: Lookup, tokens: ServiceAccountTokens) -> None:
        self._ip, self._lookup, self._tokens = ip, lookup, tokens

    async def files(self, pod: Pod, volume: Volume) -> dict[str, File]:
        """Raises ContainerConfigError, and what reading a ConfigMap or Secret and asking for a token raise."""
        if volume.config_map is not None:
            return await self._config_map(pod, volume.config_map, _mode(volume.config_map.default_mode))
        if volume.secret is not None:
            of = volume.secret
            projection = SecretProjection(name=of.secret_name, items=of.items, optional=of.optional)
            return await self._secret(pod, projection, _mode(of.default_mode))
        if volume.downward_api is not None:
            return self._downward_api_files(pod, volume.downward_api.items, _mode(volume.downward_api.default_mode))
        if volume.projected is not None:
            return await self._projected_files(pod, volume.name, volume.projected)
        raise ContainerConfigError("it holds no files")

    async def _config_map(
        self, pod: Pod, source: ConfigMapVolumeSource | ConfigMapProjection, mode: int
    ) -> dict[str, File]:
        optional = bool(source.optional)
        found = await self._lookup.config_map(pod.metadata.namespace, source.name, optional=optional)
        return _select_keys("config", found or {}, source.items, mode, optional=optional)

    async def _secret(self, pod: Pod, source: SecretProjection, mode: int) -> dict[str, File]:
        optional = bool(source.optional)
        found = await self._lookup.secret(pod.metadata.namespace, source.name, optional=optional)
        return _select_keys("secret", found or {}, source.items, mode, optional=optional)

    async def _projected_files(self, pod: Pod, name: str, volume: ProjectedVolumeSource) -> dict[str, File]:
        files: dict[str, File] = {}
        for source in volume.sources:
            files.update(await self._projection(pod, name, source, _mode(volume.default_mode)))
        return files

    async def _projection(self, pod: Pod, name: str, source: VolumeProjection, mode: int) -> dict[str, File]:
        if source.config_map is not None:
            return await self._config_map(pod, source.config_map, mode)
        if source.secret is not None:
            return await self._secret(pod, source.secret, mode)
        if source.downward_api is not None:
            return self._downward_api_files(pod, source.downward_api.items, mode)
        if source.service_account_token is not None:
            return await self._token(pod, name, source.service_account_token, mode)
        kind = "clusterTrustBundle" if source.cluster_trust_bundle else "podCertificate"
        raise ContainerConfigError(f"projected volumes with a {kind} are not supported by this node")

    async def _token(self, pod: Pod, name: str, asked: ServiceAccountTokenProjection, mode: int) -> dict[str, File]:
        """A token is private where the user or group that reads it is known."""
        user, group = fs_user(pod), fs_group(pod)
        private = user is not None or group is not None
        token = await self._tokens.token(pod, name, asked)
        return {asked.path: File(token.encode(), PRIVATE_MODE if private else mode, user)}

    def _downward_api_files(self, pod: Pod, items: Iterable[DownwardAPIVolumeFile], mode: int) -> dict[str, File]:
        return {each.path: File(self._downward_api_value(pod, each).encode(), _mode(each.mode, mode)) for each in items}

    def _downward_api_value(self, pod: Pod, file: DownwardAPIVolumeFile) -> str:
        if file.field_ref is not None:
            return field(pod, file.field_ref.field_path, self._ip)
        if file.resource_field_ref is not None:
            return resource(pod, pod.spec.containers[0], file.resource_field_ref, self._lookup.allocatable)
        raise ContainerConfigError(f"file {file.path} of a downward API volume names nothing")


def _mode(asked: int | None, usual: int = FILE_MODE) -> int:
    return usual if asked is None else asked & 0o777


def _select_keys(
    kind: str, found: Mapping[str, bytes], items: Iterable[KeyToPath], mode: int, *, optional: bool
) -> dict[str, File]:
    """All keys under their own names, or the listed ones under theirs."""
    wanted = {item.path: (item.key, _mode(item.mode, mode)) for item in items} or {key: (key, mode) for key in found}
    missing = [key for key, _ in wanted.values() if key not in found]
    if missing and not optional:
        raise ContainerConfigError(f"references non-existent {kind} key: {missing[0]}")
    return {path: File(found[key], each) for path, (key, each) in wanted.items() if key in found}
