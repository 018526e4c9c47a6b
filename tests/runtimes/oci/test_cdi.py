"""Edits of a container's configuration for devices that CDI files describe, as nvidia-ctk writes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.oci import cdi

HOOK = {"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk", "args": ["nvidia-ctk", "hook", "update-ldcache"]}
WHOLE = {
    "env": ["NVIDIA_VISIBLE_DEVICES=void"],
    "deviceNodes": [{"path": "/dev/nvidiactl"}],
    "mounts": [
        {
            "hostPath": "/usr/lib/libcuda.so.1",
            "containerPath": "/usr/lib/libcuda.so.1",
            "options": ["ro", "nosuid", "rbind"],
        }
    ],
    "hooks": [HOOK],
}
NVIDIA = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": str(number), "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{number}"}]}}
        for number in range(2)
    ]
    + [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]}}],
    "containerEdits": WHOLE,
}


def config() -> dict[str, Any]:
    mounts = [{"destination": "/dev/nvidia1", "type": "bind", "source": "/dev/nvidia1", "options": ["rbind", "rw"]}]
    return {"process": {"env": ["A=1"]}, "mounts": mounts}


@pytest.mark.parametrize("kind", ["json", "yaml"])  # JSON is YAML
def test_a_device_brings_its_driver(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"nvidia.{kind}").write_text(json.dumps(NVIDIA))
    found = config()
    cdi.apply(found, cdi.edits(cdi.read([tmp_path, tmp_path / "absent"]), ["/dev/nvidia1", "/dev/nvidiactl"]))

    assert found["process"]["env"] == ["A=1", "NVIDIA_VISIBLE_DEVICES=void"]
    assert [each["destination"] for each in found["mounts"]] == [
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/usr/lib/libcuda.so.1",
    ]
    assert found["mounts"][2]["options"] == ["rbind", "ro", "nosuid"]
    assert found["hooks"] == {"createContainer": [{"path": HOOK["path"], "args": HOOK["args"], "env": []}]}


def test_who_has_no_device_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "nvidia.json").write_text(json.dumps(NVIDIA))

    assert cdi.edits(cdi.read([tmp_path]), ["/dev/nvidiactl"]) == []
    assert cdi.edits(cdi.read([tmp_path]), []) == []


def test_the_later_folder_counts(tmp_path: Path) -> None:
    for folder, value in (("etc", "old"), ("run", "new")):
        (tmp_path / folder).mkdir()
        edits = {"env": [f"WHICH={value}"], "deviceNodes": [{"path": "/dev/fpga"}]}
        spec = {"kind": "example.com/fpga", "devices": [{"name": "0", "containerEdits": edits}]}
        (tmp_path / folder / "fpga.json").write_text(json.dumps(spec))

    found = cdi.edits(cdi.read([tmp_path / "etc", tmp_path / "run"]), ["/dev/fpga"])
    assert [each.env for each in found if each.env] == [["WHICH=new"]]


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"kind"')
    (tmp_path / "torn.yaml").write_text("- a\n- b\n")
    (tmp_path / "nvidia.json").write_text(json.dumps(NVIDIA))

    assert [each.kind for each in cdi.read([tmp_path])] == ["nvidia.com/gpu"]
