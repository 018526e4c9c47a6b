"""Master keys: what wraps the data keys that encrypt Secrets. From a file, or by a command that asks a key service.

The command line makes one of settings and hands it to `open_store`. Nothing of a master key is ever in the database. Both raise
`MasterKeyError`, with what to do.
"""

import asyncio
import base64
import binascii
import os
import shlex
import stat
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

from app.store.errors import Unavailable

KEY_SIZE = 32  # bytes: AES-256
_COMMAND_SECONDS = 30.0
_LONGEST = 64 << 10  # bytes of what a command may print
_NEW_KEY = "umask 077; head -c 32 /dev/urandom | base64"


class MasterKeyError(Exception):
    """No master key can be had, or not the one that wrapped a data key."""


class Wrapped(NamedTuple):
    """A data key under a master key, whose `name` says which."""

    name: str
    data: bytes


class MasterKeys(Protocol):
    """Wraps data keys of `KEY_SIZE` bytes under the newest master key, and unwraps them."""

    async def wrap(self, key: bytes) -> Wrapped: ...

    async def unwrap(self, wrapped: Wrapped) -> bytes: ...


class KeyFile:
    """A file with one key a line, base64 of 32 bytes: the first line wraps, all lines unwrap. Read anew at each use."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def wrap(self, key: bytes) -> Wrapped:
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        name, master = next(iter(self._read().items()))
        return Wrapped(name, aes_key_wrap(master, key))

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        master = self._read().get(wrapped.name)
        if master is None:
            raise MasterKeyError(
                f"{self._path} lacks the key {wrapped.name}, under which Secrets are stored: add its line"
            )
        try:
            return aes_key_unwrap(master, wrapped.data)
        except InvalidUnwrap as error:
            raise MasterKeyError(
                f"a data key in the database is damaged: restore the table data_keys ({wrapped.name})"
            ) from error

    def _read(self) -> dict[str, bytes]:
        """Return the keys by name, the newest first."""
        try:
            if self._path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise MasterKeyError(f"other users can reach {self._path}: chmod 600 {self._path}")
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            raise MasterKeyError(f"{self._path} is not there; make a key: {_NEW_KEY} > {self._path}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise MasterKeyError(f"cannot read {self._path}: {error}") from error
        keys = [self._parse(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if not keys:
            raise MasterKeyError(f"{self._path} holds no key; make one: {_NEW_KEY} > {self._path}")
        return {sha256(key).hexdigest()[:16]: key for key in keys}

    def _parse(self, number: int, line: str) -> bytes:
        try:
            key = base64.b64decode(line.strip(), validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_SIZE:
            raise MasterKeyError(f"{self._path}:{number} is not the base64 of {KEY_SIZE} bytes; make a key: {_NEW_KEY}")
        return key


class KeyCommand:
    """A command of the operator's: `COMMAND wrap` and `COMMAND unwrap` read standard input and write standard output.

    `wrap` gets a data key in base64; `unwrap` gets what `wrap` printed for it, which has to tell by itself which master key it
    needs. A command that fails is like a database that is away (Unavailable): a key service comes back.
    """

    name = "command"

    def __init__(self, command: str) -> None:
        self._command = command

    async def wrap(self, key: bytes) -> Wrapped:
        return Wrapped(self.name, await self._run("wrap", base64.b64encode(key)))

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        if wrapped.name != self.name:
            raise MasterKeyError(
                f"Secrets are stored under the key {wrapped.name} of a file: set JOBPLANE_SECRETS_KEY_FILE, too, "
                "until `jobplane secrets rotate` has ended"
            )
        text = await self._run("unwrap", wrapped.data)
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_SIZE:
            raise MasterKeyError(f"`{self._command} unwrap` did not print the base64 of {KEY_SIZE} bytes")
        return key

    async def _run(self, verb: str, given: bytes) -> bytes:
        """Run the command; its standard error goes to ours. What it reads and prints is never logged."""
        try:
            child = await asyncio.create_subprocess_exec(
                *shlex.split(self._command), verb, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        except (OSError, ValueError) as error:
            raise MasterKeyError(f"cannot run `{self._command} {verb}`: {error}") from error
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                printed, _ = await child.communicate(given)
        except TimeoutError:
            raise Unavailable(f"`{self._command} {verb}` did not end within {_COMMAND_SECONDS:.0f} s") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode or not printed.strip() or len(printed) > _LONGEST:
            raise Unavailable(
                f"`{self._command} {verb}` ended with {child.returncode} and printed {len(printed)} bytes"
            )
        return printed.strip()


class FileOrCommand:
    """Both at once, while an operator moves from a file to a command: the command wraps, either unwraps."""

    def __init__(self, file: KeyFile, command: KeyCommand) -> None:
        self._file, self._command = file, command

    async def wrap(self, key: bytes) -> Wrapped:
        return await self._command.wrap(key)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        return await (self._command if wrapped.name == KeyCommand.name else self._file).unwrap(wrapped)


def new_data_key() -> bytes:
    """Return a random key for AES-256."""
    return os.urandom(KEY_SIZE)


def master_keys(file: Path | None, command: str) -> MasterKeys | None:
    """Return the master keys that settings name; None if Secrets are not to be encrypted."""
    if file is not None and command:
        return FileOrCommand(KeyFile(file), KeyCommand(command))
    return KeyCommand(command) if command else KeyFile(file) if file is not None else None
