"""Policy process: evaluates the expressions of admission policies, in a process of its own that ends when they take too much.

Started by `policy_evaluator`, which writes batches to its standard input and reads findings from its standard output. The CEL
runtime cannot be interrupted: so the kernel ends this process after half a second of CPU time for one policy, and an allocation
beyond a gibibyte fails. It ends with its parent, whose end closes the input.
"""

import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

from app.kinds.admission.policy_schema import ValidatingAdmissionPolicySpec
from app.machinery.custom import rules
from app.machinery.custom.rules import Rule
from app.plans.admission.policies.evaluation import Findings, evaluate

CPU_SECONDS = 0.5  # of one policy for one object
MEMORY_BYTES = 1 << 30
MOST_POLICIES = 1_000  # that are kept compiled


class Ask(msgspec.Struct, frozen=True):
    """One policy for one object. `policy`: key of its version; `documents`: which of the batch's; `params`: its parameters."""

    policy: str
    documents: int
    params: Any = None


class Batch(msgspec.Struct, frozen=True):
    """What to evaluate together. `policies`: those that this process has not been told of, by key; `rules`: so of schemas."""

    policies: Mapping[str, ValidatingAdmissionPolicySpec]
    rules: Mapping[str, tuple[Rule, ...]]
    documents: tuple[Mapping[str, Any], ...]
    asks: tuple[Ask, ...]


Known = ValidatingAdmissionPolicySpec | tuple[Rule, ...]
_decoder = msgspec.json.Decoder(Batch)
_encoder = msgspec.json.Encoder()


def write_frame(stream: BinaryIO, body: bytes) -> None:
    """Write a message: its length in four bytes, and it."""
    stream.write(len(body).to_bytes(4) + body)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """Read a message; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = int.from_bytes(head)
    body = stream.read(size)
    return body if len(body) == size else None


def main() -> None:
    """Answer batches until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    known: dict[str, Known] = {}
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        batch = _decoder.decode(frame)
        if len(known) > MOST_POLICIES:
            known.clear()
        known |= batch.policies
        known |= batch.rules
        write_frame(sys.stdout.buffer, _encoder.encode([_answer(known, batch, ask) for ask in batch.asks]))


def _answer(known: Mapping[str, Known], batch: Batch, ask: Ask) -> Findings | None:
    """Return the findings; None if the policy is not known here any more."""
    spec = known.get(ask.policy)
    if spec is None:
        return None
    inputs = batch.documents[ask.documents]
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        if isinstance(spec, tuple):
            return Findings(rules=tuple(rules.evaluate(spec, inputs)))
        return evaluate(spec, {"params": ask.params, **inputs} if spec.param_kind else inputs)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
