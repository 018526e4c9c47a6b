"""Images of a Docker Engine: lists, pulls with the kubelet's reasons, removals that spare what is used. Called by `runtime`."""

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from app.plans.kubelet import image_pulls
from app.runtimes.base import Image, Login, PullError
from app.runtimes.docker.config import PAUSE
from app.runtimes.docker.engine import DockerEngine, filters
from app.runtimes.engine.containers import answers
from app.runtimes.engine.errors import GONE, EngineError, unless_gone


class DockerImages:
    """`users`: whom each image, by id, runs as; the engine's list does not tell."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._users: dict[str, str] = {}

    async def all(self) -> list[Image]:
        found = await self._engine.ask("images/json")
        users = await answers([self.user(one["Id"]) for one in found])
        self._users = {one["Id"]: user for one, user in zip(found, users, strict=True)}
        return [Image(one["Id"], _names(one), int(one["Size"]), user) for one, user in zip(found, users, strict=True)]

    async def user(self, image: str) -> str:
        """Empty also for one that is not there."""
        if image not in self._users:
            with unless_gone():
                found = await self._engine.ask(f"images/{image}/json")
                return str((found.get("Config") or {}).get("User") or "")
        return self._users.get(image, "")

    async def remove(self, image_id: str) -> None:
        """Not one that a container uses, nor what pods themselves are made of."""
        try:
            found = await self._engine.ask(f"images/{image_id}/json")
        except EngineError as error:
            if error.code != GONE:
                raise
            return
        ids = [found["Id"], found["Id"].removeprefix("sha256:")]  # as Docker calls it, and as Podman does
        using = await self._engine.ask("containers/json", all=1, filters=filters(ancestor=ids))
        if using or image_pulls.full_name(PAUSE) in _names(found):
            return
        with unless_gone():
            if await self._engine.is_podman():
                await self._remove_by_name(found)
            else:
                await self._engine.ask(f"images/{found['Id']}", "DELETE", force=1)

    async def _remove_by_name(self, found: Mapping[str, Any]) -> None:
        """Podman removes what has several names by force only, and with it containers that run by now."""
        for name in [*(found.get("RepoTags") or ())[1:], found["Id"]]:
            await self._engine.ask(f"images/{name}", "DELETE")


async def pull(engine: DockerEngine, image: str, login: Login | None) -> str:
    try:
        where, separator, reference = parts(image_pulls.full_name(image))
    except image_pulls.InvalidImageName as error:
        raise PullError(f'Failed to apply default image tag "{image}": {error}', "InvalidImageName") from error
    try:
        headers = _auth_headers(login, where)
        async with aclosing(engine.follow("images/create", "POST", headers, fromImage=where, tag=reference)) as told:
            async for line in told:
                if "error" in line:
                    raise PullError(f'failed to pull image "{image}": {line["error"]}')
        return str((await engine.ask(f"images/{where}{separator}{reference}/json"))["Id"])
    except EngineError as error:
        raise PullError(f'failed to pull image "{image}": {error}') from error


def parts(name: str) -> tuple[str, str, str]:
    """Return where it is, and which it is there: a tag, or a digest."""
    return name.partition("@") if "@" in name else name.rpartition(":")


def _auth_headers(login: Login | None, where: str) -> Mapping[str, str] | None:
    if login is None:
        return None
    told = {"username": login.username, "password": login.password, "serveraddress": where.partition("/")[0]}
    return {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(told).encode()).decode()}


def _names(found: Mapping[str, Any]) -> Sequence[str]:
    """With registry and folder, as containerd tells them."""
    names = [*(found.get("RepoTags") or ()), *(found.get("RepoDigests") or ())]
    return [image_pulls.full_name(name) for name in names if "<none>" not in name]
