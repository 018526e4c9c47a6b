"""Fields of settings: what each says of itself, and how the environment names it. Called by every record of settings."""

from typing import Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

PREFIX = "JOBPLANE_"
Program = Literal["api", "controllers", "agent"]


def about(text: str, unset: str = "", *read_by: Program, **limits: Any) -> Any:
    """A setting's description.

    unset:   what holds if the setting is left empty; other defaults speak for themselves.
    read_by: the programs that read a setting for which they have no flag.
    limits:  as for pydantic's Field: ge=0.
    """
    return Field(description=text, json_schema_extra={"unset": unset, "read_by": list(read_by)}, **limits)


def variable(name: str) -> str:
    """The environment variable that sets it."""
    return f"{PREFIX}{name.upper()}"


def items(text: str) -> tuple[str, ...]:
    """Split a comma-separated setting."""
    return tuple(each for part in text.split(",") if (each := part.strip()))


def unset_text(field: FieldInfo) -> str:
    """What holds if the setting is left empty."""
    return str(_extra(field)["unset"])


def read_without_flag(field: FieldInfo) -> list[Program]:
    """The programs that read it though they have no flag for it."""
    programs: list[Program] = _extra(field)["read_by"]
    return programs


def _extra(field: FieldInfo) -> dict[str, Any]:
    found = field.json_schema_extra
    return found if isinstance(found, dict) else {}
