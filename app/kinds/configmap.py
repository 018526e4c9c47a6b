"""The ConfigMap kind."""

from typing import Annotated

from app.kinds.base import (
    Object,
    at,
)


class ConfigMap(Object):
    """TODO-DOC"""

    data: Annotated[dict[str, str], at(2)] = {}
    binary_data: Annotated[dict[str, bytes], at(3)] = {}
    immutable: Annotated[bool | None, at(4)] = None
