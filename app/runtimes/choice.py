"""Choice of a runtime where none is asked for (`auto`): `oci` where this machine allows it, else `process`.

Called when an agent starts. What was chosen once for a data folder stays, as one runtime does not adopt another's containers.
Data folders of versions that knew no `auto` have containers of the process runtime.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

RECORD, CONTAINERS = "runtime", "containers"  # in the agent's folder; the second is the process runtime's


class Choice(NamedTuple):
    """`reason`: a sentence for the log."""

    runtime: Literal["process", "oci"]
    reason: str


_OCI = Choice("oci", "containers of images, which are pulled. For programs of this machine: --runtime process")


def choose(state_dir: Path, find_obstacle: Callable[[Path], str]) -> Choice:
    """`find_obstacle`: why a folder of this machine cannot have containers of oci; empty if it can. Raises OSError."""
    record = state_dir / RECORD
    kept = record.read_text(encoding="ascii").strip() if record.exists() else ""
    if kept == "oci":
        return Choice("oci", "containers of images, as before with this data folder")
    if kept == "process" or (state_dir / CONTAINERS).exists():
        return Choice("process", "programs of this machine, as before with this data folder. For images: --runtime oci")
    obstacle = find_obstacle(state_dir)
    found = Choice("process", f"programs of this machine; images are not pulled, as {obstacle}") if obstacle else _OCI
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    record.write_text(f"{found.runtime}\n", encoding="ascii")
    return found
