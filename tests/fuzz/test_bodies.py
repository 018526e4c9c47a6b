"""Whatever is sent, the answer is below 500, a refusal is a Status, and what was accepted stays readable and writable.

JOBPLANE_FUZZ_REQUESTS says how many requests (all fuzzers together), JOBPLANE_FUZZ_SEED which ones.
"""

import pytest

from tests.fuzz.campaign import campaign
from tests.fuzz.target import REQUESTS, SEED, SHARES, Target

PARTS = 4  # so that two test processes share the work


@pytest.mark.timeout(300 + REQUESTS // 20)
@pytest.mark.parametrize("part", range(PARTS))
async def test_nothing_that_is_sent_breaks_the_server(part: int, fuzzed: Target) -> None:
    findings = await campaign(fuzzed, int(REQUESTS * SHARES["bodies"]) // PARTS, SEED * PARTS + part)

    assert not findings.faults, findings.told()
    assert findings.codes[200] + findings.codes[201] > findings.codes.total() / 5, "too little of it was ever accepted"
