"""Policy evaluator: asks the policy process what policies say, and starts it when the first policy applies to something.

Whoever waits for an answer waits in a coroutine: nothing of an expression runs in this process. If the policy process ends, each
policy that was asked for is asked for once more by itself, and one that ends the process again has run out of its budget.
"""

import asyncio
import select
import subprocess
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from app.kinds.admission.policy_schema import ValidatingAdmissionPolicySpec
from app.machinery.custom.rules import Rule
from app.machinery.errors import ApiError
from app.plans.admission.policies.evaluation import Findings
from app.registry.admission.policy_process import Ask, Batch, read_frame, write_frame
from jobplane.program import command

MOST_WAITING = 1_000
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_PATIENCE_SECONDS = 30.0  # by the clock, for a process that the kernel did not let run
_THREAD = ThreadPoolExecutor(1, "admission-policies")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Findings | None])
Specs = Mapping[str, ValidatingAdmissionPolicySpec]
Rules = Mapping[str, tuple[Rule, ...]]


class _Ended(Exception):
    """The policy process ended before it answered."""


class PolicyEvaluator:
    """One policy process, which is started anew when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._end_process: Callable[[], object] = _nothing  # also called when nobody has this evaluator any more
        self._known: set[str] = set()
        self._waiting = 0

    async def evaluate(
        self, specs: Specs, batch: Sequence[Mapping[str, object]], asks: Sequence[Ask]
    ) -> list[Findings]:
        """Return what each policy says. 429 if too many wait before."""
        return await self._wait(specs, batch, asks)

    async def evaluate_rules(
        self, rules: Rules, batch: Sequence[Mapping[str, object]], asks: Sequence[Ask]
    ) -> list[Findings]:
        """Return which rules of schemas fail. 429 if too many wait before."""
        return await self._wait(rules, batch, asks)

    async def _wait(
        self, specs: Specs | Rules, batch: Sequence[Mapping[str, object]], asks: Sequence[Ask]
    ) -> list[Findings]:
        if self._waiting >= MOST_WAITING:
            why = "too many objects wait for admission policies, please try again later"
            raise ApiError(429, "TooManyRequests", why, retryAfterSeconds=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(_THREAD, self._evaluate, specs, batch, asks)
        finally:
            self._waiting -= 1

    def _evaluate(
        self, specs: Specs | Rules, documents: Sequence[Mapping[str, object]], asks: Sequence[Ask]
    ) -> list[Findings]:
        try:
            return self._exchange(specs, documents, asks)
        except _Ended:
            return [self._evaluate_alone(specs, documents, ask) for ask in asks]

    def _evaluate_alone(self, specs: Specs | Rules, documents: Sequence[Mapping[str, object]], ask: Ask) -> Findings:
        try:
            alone = msgspec.structs.replace(ask, documents=0)
            return self._exchange(specs, [documents[ask.documents]], [alone])[0]
        except _Ended:
            return Findings(error=OUT_OF_BUDGET)

    def _exchange(
        self, specs: Specs | Rules, documents: Sequence[Mapping[str, object]], asks: Sequence[Ask]
    ) -> list[Findings]:
        """Send a batch and read the answer. Raises _Ended."""
        while True:
            process = self._running()
            new = {ask.policy: specs[ask.policy] for ask in asks if ask.policy not in self._known}
            policies = {key: each for key, each in new.items() if not isinstance(each, tuple)}
            rules = {key: each for key, each in new.items() if isinstance(each, tuple)}
            answer = self._send(process, _encoder.encode(Batch(policies, rules, tuple(documents), tuple(asks))))
            self._known |= new.keys()
            found = _decoder.decode(answer)
            if None not in found:
                return [each for each in found if each is not None]
            self._known.clear()  # it keeps only so many: tell it of all of these again

    def _send(self, process: subprocess.Popen[bytes], body: bytes) -> bytes:
        stdin, stdout = process.stdin, process.stdout
        answer = None
        if stdin is not None and stdout is not None:
            with suppress(OSError):
                write_frame(stdin, body)  # type: ignore[arg-type]  # a buffered writer
                if select.select([stdout], [], [], _PATIENCE_SECONDS)[0]:
                    answer = read_frame(stdout)  # type: ignore[arg-type]  # a buffered reader
        if answer is None:
            self._end_process()
            self._process = None
            raise _Ended
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end_process()
            self._process = subprocess.Popen(
                command("app.registry.admission.policy_process"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._known = set()
            self._end_process = weakref.finalize(self, _end, self._process)
        return self._process


def _nothing() -> None:
    pass


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    process.wait()
