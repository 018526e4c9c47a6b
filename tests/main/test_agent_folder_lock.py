"""A folder that one agent has is no other's, until that one has ended."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from app.main.agent_process import LockedError, lock_folder

HOLDS = """
import asyncio, pathlib, sys
from app.main.agent_process import lock_folder
asyncio.run(lock_folder(pathlib.Path(sys.argv[1])))
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_claimed_by_one_process_for_as_long_as_it_lives(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(LockedError, match="another agent runs on"):
            asyncio.run(lock_folder(tmp_path))
        other.kill()
        asyncio.run(lock_folder(tmp_path))
