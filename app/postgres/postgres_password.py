"""Password of an embedded Postgres, without which nobody connects: not even a process of the same user that finds the socket.

Called by `embedded_postgres` before each start. The password is in `pgpass` beside the cluster, a file that asyncpg and libpq
read themselves (`passfile` in the URL), so that neither a URL nor an environment holds it. `pg_hba.conf` names the password's
digest: if it names another, or lets users in without one as in folders of earlier versions, the password is set anew.
"""

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from app.postgres.postgres_folder import Account, Cluster, give

_ENTRY = "*:*:*:postgres:"
_ITERATIONS = 4096  # Postgres' own default
_RULES = """\
# Written by `jobplane up`, which replaces what differs. The password is in ../pgpass; its digest: {digest}
local all all scram-sha-256
local replication all scram-sha-256
"""


def ensure(cluster: Cluster, account: Account) -> str:
    """Return the password, from the file or made now. Raises OSError."""
    try:
        kept = cluster.passfile.read_text().strip()
    except FileNotFoundError:
        kept = ""
    if kept.startswith(_ENTRY) and len(kept) > len(_ENTRY):
        return kept.removeprefix(_ENTRY)
    password = secrets.token_urlsafe(32)
    _replace(cluster.passfile, f"{_ENTRY}{password}\n", account)
    return password


def is_set(cluster: Cluster, password: str) -> bool:
    """Return whether the cluster asks for this password, and for nothing less."""
    try:
        return (cluster.data / "pg_hba.conf").read_text(errors="replace") == _rules(password)
    except FileNotFoundError:
        return False


def demand(cluster: Cluster, password: str, account: Account) -> None:
    """Let in only who knows the password, from the next start on."""
    _replace(cluster.data / "pg_hba.conf", _rules(password), account)


def statement(password: str) -> str:
    """SQL that sets the password, in a form from which it cannot be read (RFC 5803)."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    parts = [base64.b64encode(each).decode() for each in (salt, stored, hmac.digest(salted, b"Server Key", "sha256"))]
    return f"alter role postgres password 'SCRAM-SHA-256${_ITERATIONS}:{parts[0]}${parts[1]}:{parts[2]}'\n"


def _rules(password: str) -> str:
    return _RULES.format(digest=hashlib.sha256(password.encode()).hexdigest()[:16])


def _replace(path: Path, text: str, account: Account) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    give(fresh, account)
    fresh.replace(path)
