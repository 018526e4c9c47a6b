"""Images of a CRI engine: lists, pulls with the kubelet's reasons, and removals that spare what is used. Called by `runtime`."""

import json
import re

from app.plans.kubelet import image_pulls
from app.runtimes.base import Image, Login, PullError
from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.engine.errors import EngineError

_SHA, _BARE = "sha256:", re.compile("[0-9a-f]{64}")
# What an engine puts in front of its words, and the kubelet takes for the reason.
_REASONS = ("RegistryUnavailable", "SignatureValidationFailed")


async def images(engine: CriEngine) -> list[Image]:
    found = await engine.ask(pb.ListImagesRequest(), pb.ListImagesResponse)
    return [
        Image(_whole(each.id), (*each.repo_tags, *each.repo_digests), each.size, _user(each)) for each in found.images
    ]


async def store(engine: CriEngine) -> str:
    """The folder of the disk that images fill; empty if the engine does not tell."""
    found = await engine.ask(pb.ImageFsInfoRequest(), pb.ImageFsInfoResponse)
    return next((each.fs_id.mountpoint for each in found.image_filesystems), "")


async def pull(engine: CriEngine, image: str, login: Login | None) -> str:
    try:
        image_pulls.full_name(image)
    except image_pulls.InvalidImageName as error:
        raise PullError(f'Failed to apply default image tag "{image}": {error}', "InvalidImageName") from error
    auth = pb.AuthConfig(username=login.username, password=login.password) if login else None
    try:
        request = pb.PullImageRequest(image=pb.ImageSpec(image=image), auth=auth)
        pulled = (await engine.ask(request, pb.PullImageResponse, timeout=None)).image_ref
        return _whole(await _id(engine, pulled) if "@" in pulled else pulled)
    except EngineError as error:
        reason = next((each for each in _REASONS if error.details.startswith(each)), "ErrImagePull")
        raise PullError(str(error), reason) from error


async def remove(engine: CriEngine, image_id: str) -> None:
    """Not one that a container uses, nor what pods themselves are made of."""
    spec = pb.ImageSpec(image=image_id.removeprefix(_SHA))  # all engines know it so
    found = (await engine.ask(pb.ImageStatusRequest(image=spec), pb.ImageStatusResponse)).image
    if not found.id or found.pinned or await _in_use(engine, found):
        return
    try:
        await engine.ask(pb.RemoveImageRequest(image=pb.ImageSpec(image=found.id)), pb.RemoveImageResponse)
    except EngineError as error:
        if error.code != "NotFound":
            raise


async def add_user(engine: CriEngine, image: pb.ImageSpec, rights: pb.LinuxContainerSecurityContext) -> None:
    """The image's own, as a kubelet does: engines take no group without a user."""
    found = await engine.ask(pb.ImageStatusRequest(image=image), pb.ImageStatusResponse)
    if found.image.username:
        rights.run_as_username = found.image.username
    else:
        rights.run_as_user.value = found.image.uid.value


def _whole(id_: str) -> str:
    """CRI-O tells the bare number."""
    return f"{_SHA}{id_}" if _BARE.fullmatch(id_) else id_


async def _id(engine: CriEngine, name: str) -> str:
    """CRI-O tells by what name and digest an image was pulled."""
    found = await engine.ask(pb.ImageStatusRequest(image=pb.ImageSpec(image=name)), pb.ImageStatusResponse)
    return found.image.id or name


def _user(image: pb.Image) -> str:
    return image.username or (str(image.uid.value) if image.uid.value else "")


async def _in_use(engine: CriEngine, image: pb.Image) -> bool:
    names = {image.id, *image.repo_tags, *image.repo_digests}
    containers = await engine.ask(pb.ListContainersRequest(), pb.ListContainersResponse)
    if any(each.image_ref in names or each.image.image in names for each in containers.containers):
        return True
    status = await engine.ask(pb.StatusRequest(verbose=True), pb.StatusResponse)
    try:
        config = json.loads(status.info.get("config", "{}"))
    except ValueError:
        return False
    return isinstance(config, dict) and config.get("sandboxImage") in names
