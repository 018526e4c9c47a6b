"""Encryption of Secrets at rest: their bodies are ciphertext in Postgres, and so in its files, its WAL and its backups.

Envelope encryption: a data key encrypts (AES-256-GCM), a master key, which the database never holds, wraps the data key
(`master_keys`), and the table `data_keys` holds what is wrapped. The writer encrypts and the reader decrypts, nothing above them
notices. A body names its data key, and is bound to its object: it cannot be passed off as another's.

A new data key becomes active only after a lead, in which every process has read it (`KeyRing.follow`): so none reads what it
cannot decrypt. Names, labels and the type of a Secret are not encrypted, as lists select by them.
"""

import asyncio
import os
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from app.store.encryption.master_keys import MasterKeyError, MasterKeys, Wrapped, new_data_key
from app.store.errors import AWAY, Key, Unavailable, call_database
from app.structured_logging import Logger

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

logger = Logger(__name__)
ENCRYPTED = frozenset({"secrets"})  # kinds
MARK = b"\x00jpe"  # how an encrypted body begins: JSON never does
LEAD = timedelta(seconds=20)
_LOOKS = 4  # in the time of a lead: several times every process has read a new data key by its end
_ID, _NONCE = 8, 12  # bytes
_HEADER = len(MARK) + _ID

_PLAIN = ""  # in place of a master key's name
_READ = "select id, master, wrapped, active_at <= now() as active from data_keys order by active_at, id"
# One transaction for all who start at once: the first data key is one.
_LOCK = "select pg_advisory_xact_lock(hashtext('jobplane data_keys'))"
_ADD = "insert into data_keys (id, master, wrapped, active_at) values ($1, $2, $3, now() + $4) on conflict do nothing"
_REWRAP = "update data_keys set master = $2, wrapped = $3 where id = $1"


_Database = asyncpg.Pool | asyncpg.Connection | PoolConnectionProxy
NO_MASTER_KEY = "no master key for Secrets: set JOBPLANE_SECRETS_KEY_FILE or JOBPLANE_SECRETS_KEY_COMMAND"


class _DataKey(NamedTuple):
    """A data key. Without a cipher it stands for plain text: encryption was switched off."""

    id: bytes
    key: bytes
    cipher: "AESGCM | None"


class KeyRing:
    """The data keys that this process knows. Without master keys it encrypts nothing, and refuses what is encrypted."""

    def __init__(self, master: MasterKeys | None = None, lead: timedelta = LEAD) -> None:
        self._master = master
        self.lead = lead
        self._keys: dict[bytes, _DataKey] = {}
        self._active: _DataKey | None = None
        self._is_behind = asyncio.Event()
        self.is_locked = False  # Secrets are encrypted, and this process has no master key

    @property
    def header(self) -> bytes | None:
        """How bodies begin that are stored now: empty for plain text, None if there is no data key at all."""
        if self._active is None:
            return None
        return MARK + self._active.id if self._active.cipher else b""

    def encrypt(self, key: Key, body: bytes) -> bytes:
        """Return what is stored of an object's body. Other kinds than ENCRYPTED stay as they are."""
        if self._active is None or self._active.cipher is None or key.kind not in ENCRYPTED:
            return body
        nonce = os.urandom(_NONCE)
        return MARK + self._active.id + nonce + self._active.cipher.encrypt(nonce, body, _context(key))

    def decrypt(self, key: Key, stored: bytes) -> bytes:
        """Return the body. Unavailable if its data key is not known here: it is read within seconds, if it can be had."""
        if not stored.startswith(MARK):
            return stored
        from cryptography.exceptions import InvalidTag

        data_key = self._keys.get(stored[len(MARK) : _HEADER])
        if data_key is None or data_key.cipher is None:
            self._is_behind.set()
            raise Unavailable(f"{self._named(key)} is encrypted under a key that this process does not have")
        nonce, rest = stored[_HEADER : _HEADER + _NONCE], stored[_HEADER + _NONCE :]
        try:
            return data_key.cipher.decrypt(nonce, rest, _context(key))
        except InvalidTag:
            raise Unavailable(
                f"{self._named(key)} is damaged in the database: restore it, or delete and create it"
            ) from None

    @staticmethod
    def _named(key: Key) -> str:
        return f"Secret {key.namespace}/{key.name}"

    async def load(self, pool: asyncpg.Pool) -> None:
        """Read the data keys; make the first one if there is none. MasterKeyError if one cannot be unwrapped."""
        rows = await call_database(pool.fetch(_READ))
        if self._master is not None and not rows:
            await call_database(self._add_first(pool))
            rows = await call_database(pool.fetch(_READ))
        for row in rows:
            id_ = bytes.fromhex(row["id"])
            if id_ not in self._keys and row["master"] == _PLAIN:
                self._keys[id_] = _DataKey(id_, b"", None)
            elif id_ not in self._keys and self._master is not None:
                self._take(id_, await self._master.unwrap(Wrapped(row["master"], row["wrapped"])))
            if row["active"]:
                self._active = self._keys.get(id_)
                self.is_locked = self._active is None
        await self._restore(pool, {row["id"] for row in rows})

    def check(self) -> None:
        """Raise MasterKeyError if Secrets are encrypted and this process has no master key."""
        if self.is_locked:
            raise MasterKeyError(f"Secrets in this database are encrypted, and there is {NO_MASTER_KEY}")

    async def _restore(self, pool: asyncpg.Pool, stored: set[str]) -> None:
        """Put back data keys that the database has lost, as when it was restored: Secrets may be encrypted under them."""
        for known in [each for each in self._keys.values() if each.cipher and each.id.hex() not in stored]:
            await call_database(self._add(pool, known.id, known.key, timedelta()))

    def _take(self, id_: bytes, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._keys[id_] = _DataKey(id_, key, AESGCM(key))

    async def _add(self, database: _Database, id_: bytes, key: bytes, lead: timedelta) -> None:
        wrapped = await self._master_keys().wrap(key)
        await database.execute(_ADD, id_.hex(), wrapped.name, wrapped.data, lead)

    def _master_keys(self) -> MasterKeys:
        if self._master is None:
            raise MasterKeyError(NO_MASTER_KEY)
        return self._master

    async def _add_first(self, pool: asyncpg.Pool) -> None:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK)
            if not await connection.fetch(_READ):
                await self._add(connection, os.urandom(_ID), new_data_key(), timedelta())

    async def rotate(self, pool: asyncpg.Pool) -> None:
        """Add a data key, which becomes active after the lead, and wrap all others under the newest master key."""
        await self.load(pool)
        await call_database(self._add(pool, os.urandom(_ID), new_data_key(), self.lead))
        for each in [each for each in self._keys.values() if each.cipher]:
            wrapped = await self._master_keys().wrap(each.key)
            await call_database(pool.execute(_REWRAP, each.id.hex(), wrapped.name, wrapped.data))

    async def switch_off(self, pool: asyncpg.Pool) -> None:
        """Store plain text after the lead. What is encrypted is decrypted in the background (`reencryption`)."""
        await self.load(pool)
        self._master_keys()
        await call_database(pool.execute(_ADD, os.urandom(_ID).hex(), _PLAIN, b"", self.lead))

    async def follow(self, pool: asyncpg.Pool) -> None:
        """Read new data keys until cancelled. What fails is tried again: what is known here goes on being used."""
        pause = self.lead.total_seconds() / _LOOKS
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._is_behind.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(pause / 10)  # many may ask for one that cannot be had
            self._is_behind.clear()
            try:
                await self.load(pool)
            except (MasterKeyError, Unavailable, asyncpg.PostgresError, *AWAY) as error:
                logger.warning("cannot read the data keys of Secrets; retrying", error=error)


def _context(key: Key) -> bytes:
    """What a body is bound to."""
    return "\0".join(key).encode()
