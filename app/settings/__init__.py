"""Settings, read once by the command line: a flag, else a JOBPLANE_* variable, else the default. Passed on as values.

What belongs here: what each setting is, its default and its limits, by who reads it: `common` (several programs), `api`,
`controllers`, `agent`; `settings` joins them into the one record, `Settings`; `fields` is how a field says what it is.

May import: the vocabulary of what it sets (`app.plans`, `app.runtimes`, `app.machinery`, `app.metrics`).
Imported by: `app.main`; `app.api` for what it serves. Nothing else reads settings: everything below gets values.
Start reading: `settings`, then the record of the program in question.
"""

from app.settings.api import LOOPBACK, UNSPECIFIED
from app.settings.controllers import ScoringStrategy
from app.settings.fields import Program, items, variable
from app.settings.settings import Settings, read_by, shown_default

__all__ = [
    "LOOPBACK",
    "UNSPECIFIED",
    "Program",
    "ScoringStrategy",
    "Settings",
    "items",
    "read_by",
    "shown_default",
    "variable",
]
