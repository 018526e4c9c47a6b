"""Images for tests of the oci runtime: a folder that holds the image of the tests, made once."""

import asyncio
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from app.runtimes.linux import folder_removal
from app.runtimes.oci import user_namespace
from app.runtimes.oci.image_store import ImageStore
from app.runtimes.oci.machine import PROGRAMS
from app.runtimes.oci.skopeo import Source
from tests.needs import lacking
from tests.runtimes.images import BUSYBOX, IMAGE, built, write_image


def missing() -> list[str]:
    """Programs that this machine lacks."""
    return [str(each) for each in (*PROGRAMS, BUSYBOX) if not shutil.which(each)]


def folder() -> Generator[Path, None, None]:
    """Skips the test, or fails it in CI, where programs are missing."""
    if found := missing():
        lacking(f"needs {', '.join(found)}")
    namespace = user_namespace.find()
    made = Path(tempfile.mkdtemp(prefix="jobplane-oci-"))
    try:
        write_image(made / "busybox.tar", IMAGE, built())
        asyncio.run(_load(made, namespace))
        yield made / "images"
    finally:
        folder_removal.remove([made], namespace.inside)


async def _load(made: Path, namespace: user_namespace.UserNamespace) -> None:
    (made / "images").mkdir()
    store = ImageStore(made / "images", namespace)
    await store.add(Source(f"docker-archive:{made / 'busybox.tar'}"), IMAGE)
    store.close()
