"""Ends of networks that a Docker Engine has lost track of, for it was killed between making and using them. `Leftovers` asks.

It makes two ends, puts one at its bridge, and gives the other to the pod. Where both are the machine's own for longer than
that takes, nobody will ever use them.
"""

import re
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

CLASS = Path("/sys/class/net")
AT_LEAST = 5.0  # seconds
_NAME = re.compile(r"veth[0-9a-f]{7}")  # as Docker calls both
_DELLINK, _REQUEST = 17, 1


class Links:
    """Those at one bridge."""

    def __init__(self) -> None:
        self._first_seen: dict[int, float] = {}

    def remove_lost(self, bridge: str) -> list[str]:
        """Their names; blocks. A pair is removed by the second look at the earliest."""
        found, now = lost(bridge), time.monotonic()
        self._first_seen = {index: self._first_seen.get(index, now) for index in found}
        due = [index for index, seen in self._first_seen.items() if now - seen >= AT_LEAST]
        for index in due:
            _remove(index)
        return [found[index] for index in due]


def lost(bridge: str) -> dict[int, str]:
    """The ends at the bridge whose other end the machine has, too: number and name."""
    ours = {_number(path, "ifindex"): path for path in CLASS.glob("veth*") if _NAME.fullmatch(path.name)}
    found = {}
    for path in CLASS.glob(f"{bridge}/brif/veth*"):
        end = CLASS / path.name
        index, other = _number(end, "ifindex"), ours.get(_number(end, "iflink"))
        if ours.get(index) and other and index > 0 and _number(other, "iflink") == index:
            found[index] = path.name
    return found


def _number(path: Path, name: str) -> int:
    """0 if it is gone."""
    with suppress(OSError, ValueError):
        return int((path / name).read_text(encoding="ascii"))
    return 0


def _remove(index: int) -> None:
    """With its other end."""
    body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0)
    head = struct.pack("=IHHII", 16 + len(body), _DELLINK, _REQUEST, 1, 0)
    with suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(head + body)
