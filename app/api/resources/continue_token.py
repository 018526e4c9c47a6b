"""Continue tokens of paged lists, in Kubernetes' own form. Called by `lists`.

A token names where the next page starts, relative to the collection, and at which revision. Kubernetes:
`k8s.io/apiserver/pkg/storage/continue.go`.
"""

import base64

import msgspec

from app.machinery.errors import ApiError, bad_request
from app.registry.verbs.lists import Place

NEWEST = -1  # as a token's revision: continue at the newest one (an inconsistent list)
_ENCODING = "meta.k8s.io/v1"


class _Token(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


def encode(revision: int, after: Place, namespace: str | None) -> str:
    """Return the token with which a list goes on after an object: at the first key that could follow."""
    start = f"{after[1]}\0" if namespace is not None or not after[0] else f"{after[0]}/{after[1]}\0"
    token = msgspec.json.encode(_Token(_ENCODING, revision, start))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def decode(token: str, namespace: str | None) -> tuple[int | None, Place]:
    """Return the revision, None for the newest, and the place after which the list goes on. 400 for anything else."""
    try:
        read = msgspec.json.decode(_decode_base64(token), type=_Token)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _invalid("continue key is not valid") from error
    if read.v != _ENCODING:
        raise _invalid(f"continue key is not valid: server does not recognize this encoded version {read.v}")
    if read.rv == 0 or read.rv < NEWEST or read.rv >= 1 << 63:
        raise _invalid(f"continue key is not valid: incorrect encoded start resourceVersion (version {_ENCODING})")
    if not read.start:
        raise _invalid(f"continue key is not valid: encoded start key empty (version {_ENCODING})")
    space, slash, name = read.start.removesuffix("\0").rpartition("/")
    if "\0" in space + name:
        raise _invalid(f"continue key is not valid: {read.start}")
    after = (space, name) if slash else (namespace or "", name)
    return (None if read.rv == NEWEST else read.rv), after


def _decode_base64(token: str) -> bytes:
    return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)


def _invalid(why: str) -> ApiError:
    return bad_request(f"invalid continue token: {why}")
