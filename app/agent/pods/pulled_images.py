"""Pulled images: which pods may use an image that this agent pulled with a login. Called by `images`.

An image that is on the node because one namespace pulled it with its own login may be used by pods that have that login, too.
Others must pull it themselves, so that the registry decides. Images that came onto the node by other ways are everybody's, as
are those that were pulled without a login.

Facts: Kubernetes' KubeletEnsureSecretPulledImages with the policy NeverVerifyPreloadedImages. The kubelet also notes the Secrets;
here a login is noted only as a salted digest.
"""

import os
from collections.abc import Collection, Iterable
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import msgspec

from app.plans.kubelet.image_pulls import Credential
from app.structured_logging import Logger

FILE = "pulled-images.json"
MOST = 1_000  # images that are remembered before those that are gone are forgotten

logger = Logger(__name__)


class _Pulled(msgspec.Struct, omit_defaults=True):
    """Of one image: digests of the logins that the registry has accepted for it."""

    logins: set[str] = set()


class _Content(msgspec.Struct):
    salt: str
    images: dict[str, _Pulled] = {}
    """By id."""
    pulling: set[str] = set()
    """Names of images of which a pull with a login has begun."""


class PulledImages:
    """What one agent has pulled. `path`: the file that keeps it; written before and after each pull with a login."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = self._read()

    def begin(self, name: str) -> None:
        """Note that a pull with a login begins: should the agent be killed, the image is not taken for everybody's."""
        self._content.pulling.add(name)
        self._write()

    def fail(self, name: str) -> None:
        """Note that such a pull has failed."""
        self._content.pulling.discard(name)
        self._write()

    def note(self, name: str, image_id: str, login: Credential | None) -> None:
        """Note that a pull has succeeded."""
        content = self._content
        if login is None:
            is_changed = content.images.pop(image_id, None) is not None or name in content.pulling
        else:
            content.images.setdefault(image_id, _Pulled()).logins.add(self._digest(login))
            is_changed = True
        content.pulling.discard(name)
        if is_changed:
            self._write()

    def is_private(self, image_id: str, names: Iterable[str]) -> bool:
        """Return whether an image that is on the node is not everybody's."""
        content = self._content
        return image_id in content.images or any(name in content.pulling for name in names)

    def is_allowed(self, image_id: str, logins: Iterable[Credential]) -> bool:
        """Return whether one of the logins has pulled the image."""
        known = self._content.images.get(image_id)
        return known is not None and any(self._digest(login) in known.logins for login in logins)

    def forget_others(self, ids: Collection[str]) -> None:
        """Forget images that are not on the node any more, once there are many."""
        content = self._content
        if len(content.images) > MOST:
            content.images = {each: known for each, known in content.images.items() if each in ids}

    def _digest(self, login: Credential) -> str:
        return sha256("\0".join((self._content.salt, *login)).encode(errors="surrogatepass")).hexdigest()

    def _read(self) -> _Content:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Content)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            logger.warning("cannot read which images were pulled with logins", path=str(self._path), error=error)
        return _Content(token_hex(16))

    def _write(self) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(msgspec.json.encode(self._content))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
