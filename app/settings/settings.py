"""The one record of all settings, and what help and docs show of each.

The descriptions are the help of the flags (`app.main.cli_options`) and docs/settings.md (scripts/settings_page.py).
"""

import os

from pydantic import SecretStr

from app.settings.agent import AgentSettings
from app.settings.api import ApiSettings
from app.settings.controllers import ControllerSettings
from app.settings.fields import Program, read_without_flag, unset_text


class Settings(ControllerSettings, ApiSettings, AgentSettings):
    """Frozen; one instance a process. Every path in it is absolute."""

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """The nodes, or a prefix of them with *, that the agent of `up` speaks for."""
        if self.agent_nodes.strip(" ,"):
            return tuple(each for name in self.agent_nodes.split(",") if (each := name.strip()))
        if self.runtime == "simulated":
            return (f"{self.node_name or 'simulated'}-*",)
        return (self.node_name or os.uname().nodename.lower(),)


def shown_default(name: str) -> str:
    """A setting's default as help and docs show it."""
    field = Settings.model_fields[name]
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        default = str(default).lower()
    return unset_text(field) if default in ("", None) else str(default)


def read_by(name: str) -> list[Program]:
    """The programs that read it though they have no flag for it."""
    return read_without_flag(Settings.model_fields[name])
