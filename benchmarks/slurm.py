"""A Slurm of one node on this machine, for the length of one `async with`: Debian's packages, with files and a key of its own.

Set for speed: it schedules at each submission and each end, and keeps no accounts. It runs as root, as slurmd does.
"""

import asyncio
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "squeue")
SLOTS = 60  # jobs at a time
_PORTS = "SlurmctldPort=6820-6823"
_CONF = """ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
{ports}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
MinJobAge=10
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0,default_queue_depth=2000,max_sched_time=4
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PriorityType=priority/basic
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MaxJobCount=200000
MaxArraySize=100001
SlurmdParameters=config_overrides
NodeName=bench NodeHostname={host} NodeAddr=127.0.0.1 Port=7101 CPUs={slots} RealMemory=10000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
START_SECONDS, LOOK_SECONDS = 30.0, 0.1


def missing() -> Sequence[str]:
    """What this machine lacks for it."""
    lacks = [name for name in PROGRAMS if shutil.which(name) is None]
    return [*lacks, *([] if os.geteuid() == 0 else ["root"])]


class Slurm:
    """Where it is, by which its commands find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    async def call(self, *command: str) -> str:
        """Standard output of one of its commands."""
        process = await asyncio.create_subprocess_exec(
            *command, env=self._environment, cwd=self.folder, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}")
        return said.decode()

    async def wait_until(self, *command: str, says: str, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while (await self.call(*command)).strip() != says:  # noqa: ASYNC110 - Slurm tells nobody
                await asyncio.sleep(LOOK_SECONDS)

    async def start(self, *command: str) -> asyncio.subprocess.Process:
        """One of its services, in the foreground."""
        with (self.folder / "services.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(*command, env=self._environment, stdout=log, stderr=log)


@asynccontextmanager
async def up() -> AsyncIterator[Slurm]:
    """Start it, and stop it in the end."""
    folder = Path(tempfile.mkdtemp(prefix="jobplane-bench-slurm-"))
    try:
        slurm = Slurm(_prepared(folder))
        munge = "munged --foreground --force --num-threads=10"
        files = [f"--{what}={folder}/munge.{what.partition('-')[0]}" for what in ("pid-file", "log-file", "seed-file")]
        keys = [f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
        async with AsyncExitStack() as stack:
            for command in (
                [*munge.split(), *files, *keys],
                ["slurmctld", "-D", "-c"],
                ["slurmd", "-D", "-N", "bench"],
            ):
                stack.push_async_callback(_stop, await slurm.start(*command))
            await _until_idle(slurm)
            yield slurm
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepared(folder: Path) -> Path:
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(128))
    conf = _CONF.format(host=socket.gethostname().partition(".")[0], folder=folder, slots=SLOTS, ports=_PORTS)
    (folder / "slurm.conf").write_text(conf)
    return folder


async def _until_idle(slurm: Slurm) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                return await slurm.wait_until("sinfo", "-h", "-o", "%t", says="idle", seconds=START_SECONDS)
            except RuntimeError:  # it does not answer yet
                await asyncio.sleep(LOOK_SECONDS)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        await process.wait()
