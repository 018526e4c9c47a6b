"""UIDs and random parts of names: no two objects have the same UID, whichever process made them."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from uuid import UUID

from app.registry.uids import new_uid, random_letters, uid_of

ROOT = Path(__file__).parents[2]
# A process that has made one, and so holds more for the next ones, forks twice; each of the three makes some.
FORKS = """
import os
from app.registry.uids import new_uid

new_uid()
for _ in range(2):
    if os.fork() == 0:
        print(*(new_uid() for _ in range(300)), flush=True)
        os._exit(0)
    os.wait()
print(*(new_uid() for _ in range(300)), flush=True)
"""


def test_a_uid_is_random_and_of_version_4() -> None:
    uids = [UUID(new_uid()) for _ in range(600)]
    assert len(set(uids)) == 600
    assert {uid.version for uid in uids} == {4}


def test_forks_of_a_process_make_other_uids() -> None:
    """The kernel's own are never the same twice; those that a process keeps for later are, in each of its forks."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", FORKS], env=environment, capture_output=True, text=True, check=True)
    uids = ran.stdout.split()
    assert len(uids) == 900
    assert len(set(uids)) == 900


def test_importing_makes_none() -> None:
    """What is drawn at import is the same in every fork of what has imported it, such as the prefix of Audit-Ids."""
    program = "import app.api.serve, app.controllers.manager, app.registry.uids; print(len(app.registry.uids._UNUSED))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"


def test_a_uid_is_that_of_the_library() -> None:
    for noise in (bytes(16), b"\xff" * 16, *(os.urandom(16) for _ in range(500))):
        assert uid_of(noise) == str(UUID(bytes=noise, version=4))


def test_letters_are_kubernetes_own_and_as_likely_as_each_other() -> None:
    letters = random_letters(54_000)
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]+", letters)
    counts = Counter(letters)
    assert len(counts) == 27
    assert max(counts.values()) < 2_000 * 1.2  # nine standard deviations
    assert min(counts.values()) > 2_000 * 0.8


def test_no_two_names_are_likely_to_be_the_same() -> None:
    assert len({random_letters(10) for _ in range(2_000)}) == 2_000
