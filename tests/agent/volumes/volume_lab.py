"""A node's volumes and one pod, for tests of what containers find at their mounts."""

import base64
from pathlib import Path
from typing import Any

from app.agent.pods.environment import Lookup, StorageLookup
from app.agent.volumes.volumes import Volumes
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.secret import Secret
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, PodSpec
from app.kinds.pod.security import PodSecurityContext
from app.kinds.pod.volume import ServiceAccountTokenProjection, Volume, VolumeMount
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.machinery.base import ObjectMeta
from app.runtimes.base import Mount
from tests.agent.fake_clock import FakeClock


class VolumeLab:
    """`config_maps` and `secrets` are what the API has; `reads` counts how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "volumes"
        self.clock = FakeClock()
        self.config_maps = {"scripts": {"run.sh": "echo hi", "b": "2"}}
        self.secrets = {"keys": {"token": base64.b64decode("aHVzaA==")}}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.persistent_volumes: dict[str, PersistentVolume] = {}
        self.reads = 0
        self.tokens = 0
        self.restart()

    def restart(self, *, isolated: bool = False) -> None:
        """Another agent finds what the last one left."""
        lookup = Lookup(
            self._config_map, self._secret, {}, self._token, storage=StorageLookup(self._claim, self._persistent_volume)
        )
        self.volumes = Volumes(self.root, "10.0.0.1", lookup, self.clock, isolated=isolated)

    def pod(
        self, *volumes: Volume, uid: str = "u-1", fs_group: int | None = None, user: int | None = None, **mount: Any
    ) -> Pod:
        """One container, that mounts each volume."""
        mounts = tuple(VolumeMount(name=each.name, mount_path=f"/{each.name}", **mount) for each in volumes)
        rights = PodSecurityContext(fs_group=fs_group, run_as_user=user)
        return Pod(
            metadata=ObjectMeta(name="pi", namespace="default", uid=uid, labels={"app": "pi"}),
            spec=PodSpec(
                volumes=volumes, containers=(Container(name="main", volume_mounts=mounts),), security_context=rights
            ),
        )

    async def mount(self, volume: Volume, **pod: Any) -> Mount:
        made = self.pod(volume, **pod)
        (mount,) = await self.volumes.mounts(made, made.spec.containers[0], {"I": "3"})
        return mount

    async def folder(self, volume: Volume, **pod: Any) -> Path:
        """What the container sees at the mount's path."""
        return (await self.mount(volume, **pod)).source

    async def _config_map(self, namespace: str, name: str) -> ConfigMap | None:
        self.reads += 1
        return ConfigMap(data=self.config_maps[name]) if name in self.config_maps else None

    async def _secret(self, namespace: str, name: str) -> Secret | None:
        return Secret(data=self.secrets[name]) if name in self.secrets else None

    async def _claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(name)

    async def _persistent_volume(self, _: str, name: str) -> PersistentVolume | None:
        return self.persistent_volumes.get(name)

    async def _token(self, pod: Pod, asked: ServiceAccountTokenProjection) -> tuple[str, float]:
        self.tokens += 1
        return f"{asked.audience}-{self.tokens}", float(asked.expiration_seconds or 3600)


def visible(folder: Path) -> dict[str, str]:
    """What a container finds by listing."""
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith("..")}
