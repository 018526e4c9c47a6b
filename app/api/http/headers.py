"""Headers of a request, as every request reads a few of them.

Starlette's mapping encodes the name, looks through all headers by a method of a method, and raises for one that is absent: five
look-ups are a twentieth of what a small POST takes.
"""

from starlette.types import Scope


def header_of(scope: Scope, name: bytes) -> str | None:
    """Return the first value of a header; None if there is none. `name` is in lower case, as the names in a scope are."""
    for each, value in scope["headers"]:
        if each == name:
            text: str = value.decode("latin-1")
            return text
    return None
