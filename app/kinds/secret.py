"""The Secret kind."""

from typing import Annotated

from app.kinds.base import (
    Object,
    at,
)


class Secret(Object):
    """TODO-DOC"""

    data: Annotated[dict[str, bytes], at(2)] = {}
    type: Annotated[str, at(3)] = ""
    string_data: Annotated[dict[str, str], at(4)] = {}
    immutable: Annotated[bool | None, at(5)] = None
