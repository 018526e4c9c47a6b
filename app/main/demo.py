"""`jobplane demo`: start a Jobplane, run a Job, print its log, stop. Called by `app.main.cli`."""

import asyncio
import signal
import socket
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import yaml

from app.client.api import Api
from app.kinds.batch.job import Job, condition, is_finished
from app.machinery.errors import ApiError
from app.main.cli_errors import CommandError, text_of
from jobplane.program import command

PI = Path(__file__).with_name("demo.yaml")  # examples/pi.yaml, for those who have no checkout
_READY_SECONDS = 60
_DONE_SECONDS = 300


async def run(manifest: Path, data_dir: Path) -> int:
    """Run the Job in `manifest` on a server of its own in `data_dir`; 0 if it completes."""
    document = _read_manifest(manifest)
    data_dir.mkdir(parents=True, exist_ok=True)
    started, port = time.monotonic(), _free_port()
    _print(f"starting Jobplane in {data_dir}")
    with (data_dir / "up.log").open("ab") as log:
        server = await asyncio.create_subprocess_exec(
            *command("app.main.cli"),
            "up",
            "--data-dir",
            str(data_dir),
            "--port",
            str(port),
            stdout=log,
            stderr=log,
        )
    try:
        return await asyncio.wait_for(_run(document, data_dir, port, server, started), _READY_SECONDS + _DONE_SECONDS)
    except TimeoutError:
        _print(f"timed out; see {data_dir / 'up.log'}")
        return 1
    finally:
        if server.returncode is None:
            server.send_signal(signal.SIGTERM)
            await server.wait()
        _print(f"stopped after {time.monotonic() - started:.1f} s")


def _read_manifest(manifest: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text_of(manifest))
    except yaml.YAMLError as error:
        raise CommandError(f"{manifest} is not YAML: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != "Job" or not document.get("metadata", {}).get("name"):
        raise CommandError(f"{manifest} is not a Job with a name: pass the manifest of one, such as examples/pi.yaml")
    return document


async def _run(
    document: dict[str, Any], data_dir: Path, port: int, server: asyncio.subprocess.Process, started: float
) -> int:
    api = await _wait_until_ready(data_dir, port, server)
    _print(
        f"ready after {time.monotonic() - started:.1f} s; kubectl --kubeconfig {data_dir / 'kubeconfig'} works while it runs"
    )
    try:
        return await _run_job(api, document)
    finally:
        await api.close()


async def _wait_until_ready(data_dir: Path, port: int, server: asyncio.subprocess.Process) -> Api:
    token, ca = data_dir / "admin.token", data_dir / "tls" / "ca.crt"
    while server.returncode is None:
        if token.exists() and ca.exists():
            api = Api(f"https://127.0.0.1:{port}", token.read_text().strip(), ca)
            try:
                await api.request("GET", "/readyz")
            except (OSError, ApiError):
                await api.close()
            else:
                return api
        await asyncio.sleep(0.1)
    raise SystemExit(f"`jobplane up` ended; see {data_dir / 'up.log'}")


async def _run_job(api: Api, document: dict[str, Any]) -> int:
    jobs = f"/apis/batch/v1/namespaces/{document['metadata'].get('namespace', 'default')}/jobs"
    name = document["metadata"]["name"]
    await _delete_old(api, f"{jobs}/{name}")
    made = await api.request_json("POST", jobs, document)
    _print(f"created job.batch/{name}; waiting for it to complete")
    job = await _wait_until_finished(api, jobs, name)
    await _print_log(api, made["metadata"]["namespace"], job)
    done = condition(job, "Complete")
    _print(f"{name}: {'complete' if done else 'failed'}, succeeded {job.status.succeeded}, failed {job.status.failed}")
    return 0 if done else 1


async def _delete_old(api: Api, path: str) -> None:
    """Delete the Job of an earlier demo."""
    try:
        await api.request_json("DELETE", path, {"propagationPolicy": "Background"})
    except ApiError as error:
        if error.code != 404:
            raise


async def _wait_until_finished(api: Api, jobs: str, name: str) -> Job:
    async with aclosing(api.list_and_watch(jobs, Job, {"fieldSelector": f"metadata.name={name}"})) as events:
        async for event in events:
            for job in event.items if event.object is None else [event.object]:
                if is_finished(job):
                    return job
    raise ConnectionError("the watch ended")


async def _print_log(api: Api, namespace: str, job: Job) -> None:
    labels = f"batch.kubernetes.io/controller-uid={job.metadata.uid}"
    pods = await api.request_json("GET", f"/api/v1/namespaces/{namespace}/pods", params={"labelSelector": labels})
    for pod in pods["items"]:
        log = await api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log")
        sys.stdout.buffer.write(log)
        sys.stdout.flush()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
