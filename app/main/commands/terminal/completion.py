"""Completion of names in shells: Jobs, namespaces. Called by typer while a command line is typed.

It asks the API for at most five seconds, and offers nothing if there is no answer: a completion never fails.
"""

import asyncio
from typing import Any

import typer

WAIT_SECONDS = 5.0
MOST = 500


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """List the names of Jobs in the namespace of the command line that begin with what was typed."""
    return _names(context, "/apis/batch/v1/namespaces/{namespace}/jobs", incomplete)


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """List the namespaces that begin with what was typed."""
    return _names(context, "/api/v1/namespaces", incomplete)


def _names(context: typer.Context, path: str, incomplete: str) -> list[str]:
    try:
        names = asyncio.run(_read(dict(context.params), path))
    except (Exception, SystemExit):
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _read(given: dict[str, Any], path: str) -> list[str]:
    from app.main.commands.access.cluster_access import find_cluster, open_api

    which = ("namespace", "kubeconfig", "context_name", "server", "token_file", "ca_file", "data_dir")
    cluster = find_cluster(**{name: given.get(name) for name in which})
    if cluster.access.plugin is not None:  # which may ask its user something
        return []
    api = open_api(cluster.access)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            found = await api.request_json("GET", path.format(namespace=cluster.namespace), params={"limit": str(MOST)})
    finally:
        await api.close()
    return [item["metadata"]["name"] for item in found["items"]]
