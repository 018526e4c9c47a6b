"""Default methods of runtimes without images, or without commands in containers, which inherit them."""

from collections.abc import Sequence

from app.runtimes.base import ContainerKey, Image, Login, Pipe, Session, Unsupported


class Imageless:
    """Images mean nothing: every image counts as present, and none is stored."""

    async def images(self) -> Sequence[Image]:
        return ()

    async def pull(self, image: str, login: Login | None = None) -> str:
        return ""

    async def remove_image(self, image_id: str) -> None:
        return


class Streamless:
    """No processes run, so there are no streams and ports."""

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool = False) -> Session:
        raise Unsupported("containers of this runtime run no commands")

    async def attach(self, key: ContainerKey) -> Session:
        raise Unsupported("containers of this runtime have no streams")

    async def dial(self, pod_uid: str, port: int) -> Pipe:
        raise Unsupported("pods of this runtime have no ports")
