"""Images by the names that Kubernetes' manual uses, made of this machine's files, in a registry that takes the others' place.

Each has the programs and the command of the one whose name it bears. `registries` is the configuration by which skopeo, and so
the runtime oci, asks this registry instead of Docker Hub: manifests stay as they are.
"""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache

from tests import base_images
from tests.conformance.website import Recipe
from tests.runtimes import images
from tests.runtimes.registry import Registry

HUB = "docker.io"
OURS = "registry.example/ours"
"""Where the reader of a page pushes an image of his own."""
SYSTEM = ("base-files", "bash", "dash", "coreutils", "grep", "sed", "mawk", "libc-bin", "iputils-ping", "netbase")
PACKAGES = {
    "bash": (),
    "perl": ("perl", "libmath-bigint-perl"),
    "python": ("python3", "python3-redis"),
    "redis": ("redis-server", "redis-tools"),
    "rabbitmq": ("rabbitmq-server",),
    "ubuntu": ("amqp-tools", "python3"),
}
"""What is above the system, by image."""
NAMES = {
    "bash": ("bash:latest", "bash:5"),
    "perl": ("perl:latest", "perl:5.34.0"),
    "python": ("python:latest", "python:3"),
    "redis": ("redis:latest",),
    "rabbitmq": ("rabbitmq:latest",),
    "ubuntu": ("ubuntu:22.04",),
}
COMMANDS = {
    "perl": ["perl", "-de0"],
    "python": ["python3"],
    "redis": ["redis-server", "--protected-mode", "no", "--dir", "/tmp"],
    "rabbitmq": ["/usr/lib/rabbitmq/bin/rabbitmq-server"],
}
"""Of the images that do not start a bash."""
BROKER = {
    "HOME": "/var/lib/rabbitmq",
    "RABBITMQ_NODENAME": "rabbit@localhost",
    "RABBITMQ_MNESIA_BASE": "/var/lib/rabbitmq/mnesia",
    "RABBITMQ_PID_FILE": "/var/lib/rabbitmq/pid",
    "RABBITMQ_LOGS": "-",
    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-rabbit loopback_users []",
    "RABBITMQ_CONFIG_FILE": "/nonexistent",
    "RABBITMQ_CONF_ENV_FILE": "/nonexistent",
    "RABBITMQ_ENABLED_PLUGINS_FILE": "/nonexistent",
}
"""The user guest may come from elsewhere, as with the image of that name."""


def add_hub(registry: Registry) -> None:
    """All images of Docker Hub that the pages name. Skips the test if one of the programs is missing here."""
    for tag in ("latest", "1.28"):
        _add(registry, f"{HUB}/library/busybox", tag, [images.built().layer], ["sh"], path="/bin:/usr/bin")
    _add(registry, f"{HUB}/library/alpine", "latest", [images.built().layer], ["/bin/sh"], path="/bin:/usr/bin")
    for kind, names in NAMES.items():
        env = BROKER if kind == "rabbitmq" else {}
        for name in names:
            repository, _, tag = name.partition(":")
            _add(registry, f"{HUB}/library/{repository}", tag, _layers(kind), COMMANDS.get(kind, ["bash"]), env=env)


def add_ours(registry: Registry, name: str, base: str, recipe: Recipe) -> str:
    """An image that a page tells the reader to build, above a stand-in; what it is pulled as."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for place, file in recipe.files.items():
            tar.add(file, place.lstrip("/"), filter=_executable)
        link = tarfile.TarInfo("usr/local/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        tar.addfile(link)
    layers = [*_layers(base), packed.getvalue()]
    _add(registry, f"{OURS}/{name}", "latest", layers, recipe.command, folder=recipe.folder)
    return f"{OURS}/{name}"


def registries(registry: Registry) -> str:
    """A registries.conf: what is asked of others goes to this registry, by plain HTTP."""
    form = '[[registry]]\nprefix = "{0}"\nlocation = "{1}/{0}"\ninsecure = true\n'
    return "".join(form.format(prefix, registry.name) for prefix in (HUB, OURS))


def _executable(about: tarfile.TarInfo) -> tarfile.TarInfo:
    """As `chmod +x`, which the pages ask for."""
    about.mode = 0o755
    return about


@cache
def _layers(kind: str) -> list[bytes]:
    above = PACKAGES[kind]
    if not above:
        return [_system()]
    packed = io.BytesIO()
    base_images.write_packages(packed, above, SYSTEM)
    return [_system(), packed.getvalue()]


@cache
def _system() -> bytes:
    packed = io.BytesIO()
    base_images.write_system(packed, SYSTEM)
    return packed.getvalue()


def _add(
    registry: Registry,
    name: str,
    tag: str,
    layers: Sequence[bytes],
    command: Sequence[str],
    *,
    path: str = base_images.PATH,
    folder: str = "/",
    env: Mapping[str, str] | None = None,
) -> None:
    about = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Cmd": list(command),
            "WorkingDir": folder,
            "Env": [f"{key}={value}" for key, value in {"PATH": path, **(env or {})}.items()],
        },
        "rootfs": {"type": "layers", "diff_ids": [images.digest(each) for each in layers]},
    }
    registry.add_layers(name, json.dumps(about, sort_keys=True).encode(), [_compressed(each) for each in layers], tag)


_PACKED: dict[str, bytes] = {}


def _compressed(layer: bytes) -> bytes:
    key = hashlib.sha256(layer).hexdigest()
    if key not in _PACKED:
        _PACKED[key] = gzip.compress(layer, 1, mtime=0)
    return _PACKED[key]
