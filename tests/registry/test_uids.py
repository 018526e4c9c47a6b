"""UIDs and random parts of names: what they look like, and that all letters are as likely."""

import os
import re
from collections import Counter
from uuid import UUID

from app.registry.uids import new_uid, random_letters, uid_of


def test_a_uid_is_that_of_the_library() -> None:
    for noise in (bytes(16), b"\xff" * 16, *(os.urandom(16) for _ in range(500))):
        assert uid_of(noise) == str(UUID(bytes=noise, version=4))


def test_no_uid_is_given_twice() -> None:
    uids = {new_uid() for _ in range(2_000)}
    assert len(uids) == 2_000
    assert all(UUID(uid).version == 4 for uid in uids)


def test_letters_are_kubernetes_own_and_as_likely_as_each_other() -> None:
    letters = random_letters(54_000)
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]+", letters)
    counts = Counter(letters)
    assert len(counts) == 27
    assert max(counts.values()) < 2_000 * 1.2  # nine standard deviations
    assert min(counts.values()) > 2_000 * 0.8


def test_no_two_names_are_likely_to_be_the_same() -> None:
    assert len({random_letters(10) for _ in range(2_000)}) == 2_000
