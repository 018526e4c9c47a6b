"""Leader election, fenced by the store: each election begins an epoch, by a write to a Lease in kube-system.

Called by what is elected, before it reads what it acts on. What it then writes carries the epoch's `precondition`: so what a
predecessor decided is either committed before the epoch begins, and seen, or refused. The lock of the election alone cannot
promise that, for who has lost it learns of it late.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.lease import Lease, LeaseSpec
from app.machinery.base import ObjectMeta
from app.registry.codec import decode, key_of, write_of
from app.registry.registry import Registry
from app.registry.verbs.versions import new
from app.store import Conflict, Store, Write, precondition

NAMESPACE = "kube-system"


@dataclass(frozen=True)
class Epoch:
    """Time between two elections. `over` is set as soon as a write is refused because of it."""

    precondition: Write
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[int]:
        """Commit a write set, unless the epoch is over: then Conflict."""
        try:
            revisions = await store.commit([*writes, self.precondition])
        except Conflict as conflict:
            if self.precondition.key in conflict.keys:
                self.over.set()
            raise
        return revisions[: len(writes)]


async def begin(registry: Registry, name: str) -> Epoch:
    """Begin an epoch. From now on all others are over, also those of this process."""
    key = key_of(LEASES, NAMESPACE, name)
    while True:
        head = await registry.store.get(key)
        old = decode(LEASES, head) if head is not None else None
        try:
            revisions = await registry.store.commit([_election(registry, name, old)])
        except Conflict:  # somebody else begins one at the same time, or has edited the Lease
            continue
        return Epoch(precondition(key, revisions[0]))


def _election(registry: Registry, name: str, old: object) -> Write:
    """The Lease with this process as its holder."""
    holder = f"{socket.gethostname()}_{os.getpid()}"
    now = registry.now()
    since = registry.clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if not isinstance(old, Lease):
        spec = LeaseSpec(holder_identity=holder, acquire_time=since, renew_time=since, lease_transitions=0)
        lease = Lease(metadata=ObjectMeta(name=name), spec=spec)
        return write_of(LEASES, new(LEASES, NAMESPACE, lease, now), "A")
    spec = replace(
        old.spec,
        holder_identity=holder,
        acquire_time=since,
        renew_time=since,
        lease_transitions=(old.spec.lease_transitions or 0) + 1,
    )
    return write_of(LEASES, replace(old, spec=spec), "M", old)
