"""UIDs of new objects, random, version 4 (RFC 9562), and random parts of names. Whatever creates objects calls `new_uid`.

`uuid.uuid4` asks the kernel for each UID, which costs more than all else about it. Here one call serves 256 of them.
"""

import os

_SIZE, _AT_ONCE = 16, 256
_UNUSED: list[bytes] = []
os.register_at_fork(after_in_child=_UNUSED.clear)  # or parent and child would give out the same
_ALPHABET = b"bcdfghjklmnpqrstvwxz2456789"  # no vowels, no look-alikes: Kubernetes' own choice
_FAIR = 256 - 256 % len(_ALPHABET)  # bytes from here on would make some letters likelier than others
_LETTERS = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))
_UNFAIR = bytes(range(_FAIR, 256))


def new_uid() -> str:
    """Return a UID that no other object has. Threads may call it."""
    return uid_of(_noise())


def uid_of(noise: bytes) -> str:
    """The UID of 16 bytes: `str(UUID(bytes=noise, version=4))` in a quarter of the time."""
    digits, variant = noise.hex(), "89ab"[noise[8] >> 4 & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def random_letters(count: int) -> str:
    """So many random letters and digits, as in generated names."""
    letters = b""
    while len(letters) < count:
        letters += _noise().translate(_LETTERS, _UNFAIR)
    return letters[:count].decode()


def _noise() -> bytes:
    """16 random bytes. `pop` and `extend` of a list are atomic, so that no two threads get the same."""
    try:
        return _UNUSED.pop()
    except IndexError:
        fresh = os.urandom(_SIZE * _AT_ONCE)
        _UNUSED.extend(fresh[start : start + _SIZE] for start in range(_SIZE, len(fresh), _SIZE))
        return fresh[:_SIZE]
