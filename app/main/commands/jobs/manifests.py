"""Manifests that are submitted: objects in YAML or JSON, or a script that becomes a Job. Pure; called by `submit`."""

import shlex
from pathlib import PurePath
from typing import Any

from app.main.cli_errors import CommandError
from app.main.commands.jobs.job_template import make_job
from app.main.commands.jobs.sbatch import apply_directives, read_directives, run_options

SHEBANG = "#!"
MOST_OBJECTS = 1_000


def read_manifest(text: str, source: str) -> list[dict[str, Any]]:
    """Parse what a file holds. A file that begins with `#!` is a script: one Job runs it. CommandError says what is wrong."""
    if text.startswith(SHEBANG):
        return [make_script_job(text, source)]
    found = [each for document in _parse(text, source) for each in _flatten(document)]
    if not found:
        raise CommandError(f"{source} holds no object")
    if len(found) > MOST_OBJECTS:
        raise CommandError(f"{source} holds {len(found)} objects: split it into files of at most {MOST_OBJECTS}")
    for each in found:
        _check(each, source)
    return found


def _parse(text: str, source: str) -> list[Any]:
    import yaml

    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise CommandError(f"{source} is not YAML: {' '.join(str(error).split())}") from None


def _flatten(document: Any) -> list[Any]:
    """Return the items of a List, or the one object."""
    if isinstance(document, dict) and document.get("kind") == "List":
        return list(document.get("items") or ())
    return [document]


def _check(document: Any, source: str) -> None:
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise CommandError(f"{source} holds something that is no object: each needs apiVersion, kind and metadata")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise CommandError(f"{source}: an object has no {field}")


def make_script_job(text: str, source: str) -> dict[str, Any]:
    """Make a Job that runs a script with the interpreter of its first line, as its `#SBATCH` lines say."""
    line = text.partition("\n")[0].removeprefix(SHEBANG).strip()
    interpreter = shlex.split(line)
    if not interpreter:
        raise CommandError(f"{source} names no interpreter after #!")
    name = "script" if source == "-" else PurePath(source).stem
    directives = read_directives(text, source)
    job = apply_directives(make_job(run_options(directives, name), {}), directives)
    job["spec"]["template"]["spec"]["containers"][0]["command"] = [*interpreter, "-c", text]
    return job
