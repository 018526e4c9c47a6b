"""Access modes and sizes of volumes: their checks, and how tables show them. For volumes and claims."""

from collections.abc import Iterable, Iterator, Mapping

from app.machinery.base import Quantity
from app.machinery.errors import Cause, forbidden, invalid, not_supported, required
from app.machinery.quantity import canonical, compare, fault

READ_WRITE_ONCE = "ReadWriteOnce"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", READ_WRITE_ONCE, READ_WRITE_ONCE_POD)
VOLUME_MODES = ("Block", "Filesystem")
STORAGE = "storage"
_SHORT = {READ_WRITE_ONCE: "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", READ_WRITE_ONCE_POD: "RWOP"}


def validate_access_modes(modes: Iterable[str], path: str, missing: str = "") -> Iterator[Cause]:
    """`missing`: what is said if there is none."""
    found = tuple(modes)
    if not found:
        yield required(path, missing)
    for mode in found:
        if mode not in ACCESS_MODES:
            yield not_supported(path, mode, ACCESS_MODES)
    if READ_WRITE_ONCE_POD in found and len(set(found)) > 1:
        yield forbidden(path, f"may not use {READ_WRITE_ONCE_POD} with other access modes")


def validate_volume_mode(mode: str, path: str) -> Iterator[Cause]:
    if mode not in VOLUME_MODES:
        yield not_supported(path, mode, VOLUME_MODES)


def validate_size(amounts: Mapping[str, Quantity], path: str) -> Iterator[Cause]:
    if STORAGE not in amounts:
        yield required(path)
        return
    amount = amounts[STORAGE]
    if text := fault(amount):
        yield invalid(path, amount, text)
    elif compare(amount, 0) <= 0:
        yield invalid(path, canonical(amount), "must be greater than zero")


def canonical_amounts(amounts: dict[str, Quantity]) -> dict[str, Quantity]:
    """Amounts as Kubernetes stores them; bad ones as they are, for validation."""
    return {name: each if fault(each) else canonical(each) for name, each in amounts.items()}


def short_modes(modes: Iterable[str]) -> str:
    """`RWO,RWX`, in Kubernetes' order."""
    given = set(modes)
    return ",".join(short for mode, short in _SHORT.items() if mode in given)
