"""Token files of the data folder: admin.token, with the kubeconfig made of it, and agent.token of `up`'s own agent.

Kept by `app.api.data_dir`: when an API starts, and when a file has changed. What a file held before ends. Whoever owns the
folder rotates them by `jobplane token rotate`, or by removing the files while nothing runs.
"""

import os
import secrets
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from app.api.auth.authenticator import MASTERS, NODE_PREFIX, NODES, User, digest_of
from app.api.auth.certificates import kubeconfig, write_private
from app.api.auth.tokens import holder_of
from app.registry.verbs.objects import Registry
from app.settings import Settings
from app.structured_logging import Logger

ADMIN, AGENT = "admin.token", "agent.token"
ID = "folder.id"
# For the agent to begin anew with the next token, before the one that it has is refused and its pods are stopped.
AGENT_OVERLAP = timedelta(seconds=10)
# As `up` of 0.1.0 and before let its agent in: with the right to speak for every node.
_LEGACY_AGENT, _LEGACY_NODES = f"{NODE_PREFIX}local", ("*",)

logger = Logger(__name__)


async def keep_files(registry: Registry, settings: Settings, agent_overlap: timedelta | None = None) -> None:
    """Accept the tokens of the existing files, and revoke those that these files held before.

    agent_overlap: how long the agent's old token stays valid; None: it ends at once.
    """
    folder, nodes = settings.data_dir, settings.own_nodes
    await _keep(registry, folder / ADMIN, User(name="admin", groups=(MASTERS,)), None)
    agent = User(name=f"{NODE_PREFIX}{nodes[0].rstrip('*-')}", groups=(NODES,), nodes=nodes)
    if await _keep(registry, folder / AGENT, agent, agent_overlap):
        await registry.tokens.revoke(_LEGACY_AGENT, _LEGACY_NODES)


async def _keep(registry: Registry, path: Path, user: User, overlap: timedelta | None) -> bool:
    """Accept the token of one file; return whether the file has one."""
    token = path.read_text().strip() if path.exists() else ""
    if not token:
        return False
    file = f"{folder_id(path.parent)}/{path.name}"
    until = registry.now() + overlap if overlap else None
    while not await registry.tokens.keep_file(bytes.fromhex(digest_of(token)), holder_of(user), file, until):
        logger.warning("token in a file was revoked; replacing it", path=str(path))
        token = secrets.token_urlsafe(32)
        write_private(path, token.encode())
    return True


def folder_id(folder: Path) -> str:
    """Return the unique id of a data folder, made once; safe for concurrent processes."""
    path = folder / ID
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{ID}.") as made:
            made.write(secrets.token_hex(8).encode())
            made.flush()
            with suppress(FileExistsError):
                os.link(made.name, path)
    return path.read_text().strip()


def write_kubeconfig(settings: Settings, authority: Path) -> bool:
    """Write the kubeconfig of admin.token, readable by its owner only; return False without an admin.token."""
    token = settings.data_dir / ADMIN
    if not token.exists():
        return False
    text = kubeconfig(settings.url(), authority.read_text(), token.read_text().strip())
    write_private(settings.data_dir / "kubeconfig", text.encode())
    return True
