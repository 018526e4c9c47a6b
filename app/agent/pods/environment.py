"""Environment and command of a container, with all references resolved. Called before each start.

What cannot be resolved raises `ContainerConfigError`; the container then waits as CreateContainerConfigError and is tried again.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from app.kinds.core.configmap import ConfigMap
from app.kinds.core.runtimeclass import RuntimeClass
from app.kinds.core.secret import Secret
from app.kinds.pod.container import Container, EnvFromSource, EnvVar, EnvVarSource
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import ResourceFieldSelector, ServiceAccountTokenProjection
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.machinery import quantity
from app.machinery.base import Quantity

T = TypeVar("T")

_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_MAP_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


class ContainerConfigError(Exception):
    """A container cannot be set up as its spec says, for now."""


class VolumeError(ContainerConfigError):
    """A volume cannot be had, for now: none of the pod's containers starts without it."""

    def __init__(self, volume: str, why: str) -> None:
        super().__init__(why)
        self.volume = volume


# (namespace, name) -> the object, or None if there is none.
ReadConfigMap = Callable[[str, str], Awaitable[ConfigMap | None]]
ReadSecret = Callable[[str, str], Awaitable[Secret | None]]
# A new token of a pod's account, and for how many seconds it is good.
AskToken = Callable[[Pod, ServiceAccountTokenProjection], Awaitable[tuple[str, float]]]


# (namespace, name) -> the object, or None if there is none; volumes are in no namespace.
ReadClaim = Callable[[str, str], Awaitable[PersistentVolumeClaim | None]]
ReadVolume = Callable[[str, str], Awaitable[PersistentVolume | None]]
# A RuntimeClass by its name, or None if there is none.
ReadRuntimeClass = Callable[[str], Awaitable[RuntimeClass | None]]


async def _no_storage(*_: object) -> None:
    """There are no claims."""


class StorageLookup(NamedTuple):
    """Reads claims and volumes."""

    claim: ReadClaim = _no_storage
    volume: ReadVolume = _no_storage

    def with_cache(self) -> "StorageLookup":
        return StorageLookup(_once(self.claim), _once(self.volume))


NO_STORAGE = StorageLookup()


async def no_runtime_class(_: str) -> RuntimeClass | None:
    return None


async def no_token(*_: object) -> tuple[str, float]:
    raise ContainerConfigError("this node has no tokens of service accounts")


class Lookup:
    """What a pod may refer to. `allocatable` stands in for limits that are not set. `server`: where the API is."""

    def __init__(
        self,
        config_map: ReadConfigMap,
        secret: ReadSecret,
        allocatable: Mapping[str, Quantity],
        token: AskToken = no_token,
        server: str = "",
        storage: StorageLookup = NO_STORAGE,
        runtime_class: ReadRuntimeClass = no_runtime_class,
    ) -> None:
        self._config_map, self._secret, self._storage = config_map, secret, storage
        self.allocatable = allocatable
        self.token = token
        self.server = server
        self.runtime_class = runtime_class

    def with_cache(self) -> "Lookup":
        """One that reads each object once, for a moment in which that is new enough."""
        config_map, secret = _once(self._config_map), _once(self._secret)
        storage = self._storage.with_cache()
        return Lookup(config_map, secret, self.allocatable, self.token, self.server, storage, self.runtime_class)

    async def volume_of_claim(self, pod: Pod, name: str) -> PersistentVolume:
        """The volume that a claim of the pod is bound to. Raises ContainerConfigError if they are not bound to each other."""
        claim = await self._storage.claim(pod.metadata.namespace, name)
        if claim is None:
            raise ContainerConfigError(f'persistentvolumeclaim "{name}" not found')
        if claim.status.phase != "Bound" or not claim.spec.volume_name:
            raise ContainerConfigError(f'persistentvolumeclaim "{name}" is not bound')
        volume = await self._storage.volume("", claim.spec.volume_name)
        if volume is None:
            raise ContainerConfigError(f'persistentvolume "{claim.spec.volume_name}" not found')
        reference = volume.spec.claim_ref
        if reference is None or reference.uid != claim.metadata.uid:
            raise ContainerConfigError(f'persistentvolume "{volume.metadata.name}" is bound to another claim')
        return volume

    async def config_map(self, namespace: str, name: str, *, optional: bool) -> dict[str, bytes] | None:
        found = await self._config_map(namespace, name)
        if found is None:
            _allow_absent(f'configmap "{name}" not found', optional=optional)
            return None
        return {**{key: text.encode() for key, text in found.data.items()}, **found.binary_data}

    async def secret(self, namespace: str, name: str, *, optional: bool) -> dict[str, bytes] | None:
        found = await self._secret(namespace, name)
        if found is None:
            _allow_absent(f'secret "{name}" not found', optional=optional)
            return None
        return found.data


def _once(read: Callable[[str, str], Awaitable[T]]) -> Callable[[str, str], Awaitable[T]]:
    found: dict[tuple[str, str], T] = {}

    async def read_once(namespace: str, name: str) -> T:
        key = (namespace, name)
        if key not in found:
            found[key] = await read(namespace, name)
        return found[key]

    return read_once


def _allow_absent(message: str, *, optional: bool) -> None:
    if not optional:
        raise ContainerConfigError(message)


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` is replaced if NAME is known and left alone if not; `$$` is a plain dollar."""
    if "$" not in text:
        return text
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else values.get(m[1], m[0]), text)


def expand_all(words: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Words of a command line, with $(NAME) replaced."""
    return [expand(word, env) for word in words]


async def resolve(pod: Pod, container: Container, ip: str, lookup: Lookup) -> dict[str, str]:
    """The whole environment: envFrom first, then env in order, each seeing those before it."""
    env = _api(lookup.server) if lookup.server and _talks(pod) else {}
    for source in container.env_from:
        env.update(await _many(pod, source, lookup))
    for each in container.env:
        value = await _value(pod, container, each, env, ip, lookup)
        if value is not None:
            env[each.name] = value
    return env


def _talks(pod: Pod) -> bool:
    """Return whether the pod has a token for the API: then its environment has the API's address, as in Kubernetes."""
    sources = (part for volume in pod.spec.volumes if volume.projected for part in volume.projected.sources)
    return any(part.service_account_token is not None for part in sources)


def _api(server: str) -> dict[str, str]:
    parts = urlsplit(server)
    port = str(parts.port or 443)
    return {
        "KUBERNETES_SERVICE_HOST": parts.hostname or "",
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
    }


async def _many(pod: Pod, source: EnvFromSource, lookup: Lookup) -> Iterable[tuple[str, str]]:
    found: Mapping[str, bytes] | None = None
    namespace = pod.metadata.namespace
    if source.config_map_ref:
        ref = source.config_map_ref
        found = await lookup.config_map(namespace, ref.name, optional=bool(ref.optional))
    elif source.secret_ref:
        found = await lookup.secret(namespace, source.secret_ref.name, optional=bool(source.secret_ref.optional))
    return [(source.prefix + key, _text(value)) for key, value in sorted((found or {}).items())]


async def _value(
    pod: Pod, container: Container, var: EnvVar, env: Mapping[str, str], ip: str, lookup: Lookup
) -> str | None:
    source = var.value_from
    if source is None:
        return expand(var.value, env)
    if source.field_ref:
        return field(pod, source.field_ref.field_path, ip)
    if source.resource_field_ref:
        return resource(pod, container, source.resource_field_ref, lookup.allocatable)
    return await _key(pod.metadata.namespace, source, lookup)


async def _key(namespace: str, source: EnvVarSource, lookup: Lookup) -> str | None:
    """The value of one key; None if it is missing and may be."""
    ref: Any = source.config_map_key_ref or source.secret_key_ref
    if ref is None:
        raise ContainerConfigError("an environment variable of this kind of source is not supported by this node")
    if source.config_map_key_ref:
        kind, found = "ConfigMap", await lookup.config_map(namespace, ref.name, optional=bool(ref.optional))
    else:
        kind, found = "Secret", await lookup.secret(namespace, ref.name, optional=bool(ref.optional))
    if found is None or ref.key not in found:
        _allow_absent(f"couldn't find key {ref.key} in {kind} {namespace}/{ref.name}", optional=bool(ref.optional))
        return None
    return _text(found[ref.key])


def field(pod: Pod, path: str, ip: str) -> str:
    """The downward API: a fact about the pod by its path."""
    entry = _MAP_ENTRY.fullmatch(path)
    if entry:
        found: dict[str, str] = getattr(pod.metadata, entry[1])
        return found.get(entry[2], "")
    if path in ("metadata.labels", "metadata.annotations"):
        return _as_lines(getattr(pod.metadata, path.partition(".")[2]))
    values = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": pod.status.host_ip or ip,
        "status.hostIPs": pod.status.host_ip or ip,
        "status.podIP": pod.status.pod_ip or ip,
        "status.podIPs": pod.status.pod_ip or ip,
    }
    if path not in values:
        raise ContainerConfigError(f"unsupported fieldPath: {path}")
    return values[path]


def _as_lines(entries: Mapping[str, str]) -> str:
    """`key="value"` lines, as files of a downward API volume hold them."""
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in entries.items()
    }
    return "\n".join(f'{key}="{escaped[key]}"' for key in sorted(escaped))


def resource(pod: Pod, container: Container, ref: ResourceFieldSelector, allocatable: Mapping[str, Quantity]) -> str:
    """A limit or request in units of the divisor, rounded up; what the node has if there is none."""
    if ref.container_name:
        everyone = {each.name: each for each in (*pod.spec.init_containers, *pod.spec.containers)}
        if ref.container_name not in everyone:
            raise ContainerConfigError(f"container {ref.container_name} not found")
        container = everyone[ref.container_name]
    kind, _, name = ref.resource.partition(".")
    if kind not in ("limits", "requests") or not name:
        raise ContainerConfigError(f"unsupported container resource: {ref.resource}")
    amount = _amount(container, kind, name, allocatable)
    divisor = quantity.parse(ref.divisor) if ref.divisor else 0
    return str(-(-quantity.parse(amount) // (divisor or 1)))


def _amount(container: Container, kind: str, name: str, allocatable: Mapping[str, Quantity]) -> Quantity:
    resources = container.resources
    if resources is not None:
        given = resources.limits if kind == "limits" else resources.requests
        if name in given:
            return given[name]
    return allocatable.get(name, "0") if kind == "limits" else "0"


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
