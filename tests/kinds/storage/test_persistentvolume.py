"""PersistentVolumes: what is refused of their sources, in Kubernetes' words."""

from typing import Any

import msgspec
import pytest

from app.kinds.storage.persistentvolume import PersistentVolume, validate

TYPES = '"", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"'


def faults(**source: Any) -> dict[str, str]:
    """The texts by their fields, of a volume that is well but for its source."""
    well = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
    spec = {**well, "persistentVolumeReclaimPolicy": "Retain", **source}
    made = msgspec.convert({"metadata": {"name": "v"}, "spec": spec}, PersistentVolume)
    return {cause.field: cause.message for cause in validate(made)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"hostPath": {"path": "/data", "type": "DirectoryOrCreate"}}, {}),
        ({"hostPath": {"path": "/data"}}, {}),
        (
            {"hostPath": {"path": "/data", "type": "data"}},
            {"spec.hostPath.type": f'Unsupported value: "data": supported values: {TYPES}'},
        ),
        ({"hostPath": {"path": "a/../b"}}, {"spec.hostPath.path": "Invalid value: \"a/../b\": must not contain '..'"}),
        ({"hostPath": {}}, {"spec.hostPath.path": "Required value"}),
        ({"local": {"path": "/d"}}, {"spec.nodeAffinity": "Required value: Local volume requires node affinity"}),
        ({"nfs": {"server": "s", "path": "d"}}, {"spec.nfs.path": 'Invalid value: "d": must be an absolute path'}),
        ({}, {"spec": "Required value: must specify a volume type"}),
        (
            {"hostPath": {"path": "/data"}, "nfs": {"server": "s", "path": "/d"}},
            {"spec.nfs": "Forbidden: may not specify more than 1 volume type"},
        ),
    ],
)
def test_a_source_is_checked(source: dict[str, Any], expected: dict[str, str]) -> None:
    assert faults(**source) == expected
