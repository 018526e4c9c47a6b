"""UIDs of new objects: random, version 4 (RFC 9562). Whatever creates objects calls `new_uid`.

`uuid.uuid4` asks the kernel for each UID, which costs more than all else about it. Here one call serves 256 of them.
"""

import os
from uuid import UUID

_SIZE, _AT_ONCE = 16, 256
_UNUSED: list[bytes] = []
os.register_at_fork(after_in_child=_UNUSED.clear)  # or parent and child would give out the same


def new_uid() -> str:
    """Return a UID that no other object has. Threads may call it: `pop` and `extend` of a list are atomic."""
    try:
        noise = _UNUSED.pop()
    except IndexError:
        fresh = os.urandom(_SIZE * _AT_ONCE)
        _UNUSED.extend(fresh[start : start + _SIZE] for start in range(_SIZE, len(fresh), _SIZE))
        noise = fresh[:_SIZE]
    return str(UUID(bytes=noise, version=4))
