"""Warnings about fields of a pod that have no effect in this version. Pods and Jobs warn when a client sets them."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from operator import attrgetter, contains
from typing import Any, NamedTuple

from msgspec.structs import fields

from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod_schema import PodOS, PodSpec
from app.kinds.pod.security import PodSecurityContext
from app.kinds.pod.shared_specs import TEMPLATE_SPECS
from app.kinds.pod.volume import Volume
from app.machinery.shape import shape_of

TEXT = "accepted and kept, but this version of Jobplane does not act on it yet"
MOST_WARNINGS = 50  # they travel in headers
MOST_ITEMS = 100  # of one list that are looked at

_CONTAINER = (
    "env[].value_from.file_key_ref",
    "resources.claims",
    "volume_mounts[].mount_propagation",
    "volume_mounts[].recursive_read_only",
    "volume_mounts[].bind_mount_options",
    "volume_devices",
    "lifecycle.stop_signal",
    "security_context.se_linux_options",
    "security_context.windows_options",
    "security_context.proc_mount",
    "security_context.app_armor_profile",
    "resize_policy",
    "restart_policy_rules",
)

_FILES = ("config_map", "secret", "downward_api")  # volumes of files; parts of projected ones too
_ITEMS = (*(f"volumes[].{source}" for source in _FILES), *(f"volumes[].projected.sources[].{part}" for part in _FILES))
_VOLUMES = (
    "name",
    "host_path",
    "empty_dir",
    "config_map",
    "secret",
    "downward_api",
    "projected",
    "persistent_volume_claim",
    "ephemeral",
)

NOT_ACTED_ON = (
    *(f"volumes[].{each.name}" for each in fields(Volume) if each.name not in _VOLUMES),
    "volumes[].empty_dir.mode",
    *(f"volumes[].{source}.default_user" for source in (*_FILES, "projected")),
    *(f"{source}.items[].user" for source in _ITEMS),
    *(f"{containers}[].{part}" for containers in ("init_containers", "containers") for part in _CONTAINER),
    "ephemeral_containers",
    "host_users",
    "security_context.se_linux_options",
    "security_context.windows_options",
    "security_context.sysctls",
    "security_context.fs_group_change_policy",
    "security_context.app_armor_profile",
    "security_context.supplemental_groups_policy",
    "security_context.se_linux_change_policy",
    "hostname_override",
    "resource_claims",
    "resources",
    "os",
    "eviction_responders",
)

# Values that ask for nothing but what happens anyway; most are defaults. Where nothing is said, False and 0 are such.
_HARMLESS: dict[str, Any] = {
    "host_users": True,
    **{f"{containers}[].volume_mounts[].mount_propagation": "None" for containers in ("init_containers", "containers")},
    **{f"{containers}[].security_context.proc_mount": "Default" for containers in ("init_containers", "containers")},
    "security_context.supplemental_groups_policy": "Merge",
    "os": PodOS(name="linux"),
}


class _Step(NamedTuple):
    attribute: str
    name: str  # on the wire
    is_list: bool


def _steps(entry: str) -> tuple[_Step, ...]:
    steps, shape = [], shape_of(PodSpec)
    for part in entry.split("."):
        attribute = part.removesuffix("[]")
        (field,) = (each for each in shape.fields.values() if each.attribute == attribute)
        steps.append(_Step(attribute, field.name, part.endswith("[]")))
        shape = field.shape.item or field.shape
    return tuple(steps)


@cache
def _all_steps() -> tuple[tuple[tuple[_Step, ...], Any], ...]:
    """Return the steps to each field, and its harmless value. Most processes that know pods warn of none."""
    return tuple((_steps(entry), _HARMLESS.get(entry, False)) for entry in NOT_ACTED_ON)


_USUALLY_EMPTY: dict[str, Any] = {
    "resources": ResourceRequirements(),
    "security_context": PodSecurityContext(),  # as Go clients send it for a pod that says nothing
}


class _Quick:
    """Tells of most specs at once that nothing in them is to be warned of: each field has one of its usual values."""

    def __init__(self, entries: Iterable[tuple[str, Any]], bare: Any) -> None:
        usual: dict[str, list[Any]] = {}
        for entry, harmless in entries:
            attribute, _, deeper = entry.partition(".")
            name = attribute.removesuffix("[]")
            usual.setdefault(name, [None, "", (), getattr(bare, name)])
            usual[name].append(_USUALLY_EMPTY.get(name) if deeper else harmless)
        self._read = attrgetter(*usual)
        self._usual = tuple(usual.values())

    def is_quiet(self, part: Any) -> bool:
        return all(map(contains, self._usual, self._read(part)))


_CONTAINERS = ("init_containers[].", "containers[].")
_QUICK_SPEC = _Quick(
    ((each, _HARMLESS.get(each, False)) for each in NOT_ACTED_ON if not each.startswith(_CONTAINERS)), PodSpec()
)
_QUICK_CONTAINER = _Quick(((each, _HARMLESS.get(f"containers[].{each}", False)) for each in _CONTAINER), Container())


def _is_quiet(spec: PodSpec) -> bool:
    return _QUICK_SPEC.is_quiet(spec) and all(map(_QUICK_CONTAINER.is_quiet, (*spec.init_containers, *spec.containers)))


def warnings_of_spec(spec: PodSpec, path: str) -> list[str]:
    """One text for each field set, up to a point; `path` is where the spec stands, such as spec.template.spec."""
    if TEMPLATE_SPECS.ask(_is_quiet, spec):
        return []
    found = (where for steps, harmless in _all_steps() for where in _set_at(spec, steps, harmless))
    return [f"{path}.{where}: {TEXT}" for where in islice(found, MOST_WARNINGS)]


def _set_at(part: Any, steps: tuple[_Step, ...], harmless: Any) -> Iterator[str]:
    """Paths, from `part` on, at which the field that `steps` lead to is set."""
    step, rest = steps[0], steps[1:]
    value = getattr(part, step.attribute)
    if value is None or value in ("", ()) or value == harmless:
        return
    if not rest:
        yield step.name
    elif step.is_list:
        for index, item in enumerate(value[:MOST_ITEMS]):
            for where in _set_at(item, rest, harmless):
                yield f"{step.name}[{index}].{where}"
    else:
        for where in _set_at(value, rest, harmless):
            yield f"{step.name}.{where}"
