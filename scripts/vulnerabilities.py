"""Compares the locked dependencies with published vulnerabilities, by pip-audit. `make vulnerabilities` calls it.

Without a file, pip-audit asks api.osv.dev. With OSV=all.zip, a copy of https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip,
it asks this script instead, which answers from the file on loopback: so the comparison works without a network. Exits with 1 if
a dependency is vulnerable, with 2 if nothing could be compared.
"""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

LOCKS = ("requirements.lock", "requirements-dev.lock")
Database = dict[str, list[dict[str, Any]]]
"""Entries of OSV by the canonical names of packages."""


def read_database(path: Path) -> Database:
    """Read a copy of OSV's entries of PyPI."""
    found: Database = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            entry = json.loads(archive.read(name))
            for package in {canonicalize_name(each["package"]["name"]) for each in _affected(entry)}:
                found.setdefault(package, []).append(entry)
    return found


def find_vulnerabilities(database: Database, name: str, version: str) -> list[dict[str, Any]]:
    """Return the entries about one version of a package."""
    package = canonicalize_name(name)
    return [
        entry
        for entry in database.get(package, [])
        if any(
            _is_affected(each, version)
            for each in _affected(entry)
            if canonicalize_name(each["package"]["name"]) == package
        )
    ]


def _affected(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (each for each in entry.get("affected", ()) if each.get("package", {}).get("ecosystem") == "PyPI")


def _is_affected(affected: dict[str, Any], version: str) -> bool:
    ranges = (each["events"] for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM")
    return version in affected.get("versions", ()) or any(_is_within(events, Version(version)) for events in ranges)


def _is_within(events: list[dict[str, str]], version: Version) -> bool:
    """Go through the events of a range in the order of versions: the last one at or before the version decides."""
    within = False
    for event in sorted(events, key=lambda each: _version(next(iter(each.values())))):
        ((what, text),) = event.items()
        at = _version(text)
        if (what == "introduced" and version >= at) or (what == "fixed" and version >= at):
            within = what == "introduced"
        elif what == "last_affected" and version > at:
            within = False
    return within


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def serve(database: Database) -> HTTPServer:
    """Answer OSV's query, POST with a package and a version, on a port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = find_vulnerabilities(database, asked["package"]["name"], asked["version"])
            body = json.dumps({"vulns": found} if found else {}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is http.server's
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(arguments: list[str]) -> int:
    """Compare the locks with the database in the file that is named, or with api.osv.dev."""
    options = ["--vulnerability-service", "osv"]
    if arguments:
        path = Path(arguments[0])
        try:
            database = read_database(path)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            print(f"{path} is no copy of OSV's database: {error}", file=sys.stderr)  # noqa: T201
            return 2
        options += ["--osv-url", f"http://127.0.0.1:{serve(database).server_port}/v1/query"]
    program = Path(sys.executable).with_name("pip-audit")
    command = [program, *options, "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    done = subprocess.run([*command, *(word for lock in LOCKS for word in ("-r", lock))], check=False)
    if done.returncode not in (0, 1):
        print("nothing was compared: pip-audit failed", file=sys.stderr)  # noqa: T201
        return 2
    if done.returncode and not arguments:
        print("if api.osv.dev cannot be reached: make vulnerabilities OSV=all.zip", file=sys.stderr)  # noqa: T201
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
