"""Credential plugins of kubeconfigs (`exec`): a program that prints a token or a client certificate, as kubectl runs it.

`cluster_access` calls it when a command makes its client. The protocol is client.authentication.k8s.io/v1 (or v1beta1).
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from app.main.cli_errors import CommandError

GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")


class Variable(msgspec.Struct, frozen=True):
    """A variable of the program's environment."""

    name: str
    value: str = ""


class ExecPlugin(msgspec.Struct, rename="camel", frozen=True):
    """How a kubeconfig names its program."""

    command: str
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False


class ExecStatus(msgspec.Struct, rename="camel", frozen=True):
    """What the program gives: a token, or a client certificate with its key, PEM."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    status: ExecStatus = ExecStatus()


def run_plugin(plugin: ExecPlugin, cluster: Mapping[str, Any]) -> ExecStatus:
    """Run the program and return its credential. It may ask its user on stderr and stdin. CommandError if it gives none."""
    if plugin.api_version not in _VERSIONS:
        raise CommandError(
            f"the credential plugin {plugin.command} has no apiVersion {_VERSIONS[0]}: set it in the kubeconfig"
        )
    spec: dict[str, Any] = {"interactive": os.isatty(0)} | ({"cluster": cluster} if plugin.provide_cluster_info else {})
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {
        **os.environ,
        **{each.name: each.value for each in plugin.env},
        "KUBERNETES_EXEC_INFO": json.dumps(info),
    }
    try:
        done = subprocess.run([plugin.command, *plugin.args], env=environment, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        hint = (
            f": {' '.join(plugin.install_hint.split())}"
            if plugin.install_hint
            else ": install it, or correct the kubeconfig"
        )
        raise CommandError(f"cannot run the credential plugin {plugin.command} ({error.strerror}){hint}") from error
    if done.returncode:
        raise CommandError(
            f"the credential plugin {plugin.command} failed with exit code {done.returncode}: see its lines above"
        )
    return _parse(plugin, done.stdout)


def _parse(plugin: ExecPlugin, printed: bytes) -> ExecStatus:
    try:
        found = msgspec.json.decode(printed, type=_Answer)
    except msgspec.MsgspecError:
        raise CommandError(
            f"the credential plugin {plugin.command} printed no ExecCredential: check its arguments"
        ) from None
    if found.api_version != plugin.api_version:
        why = f"answered as {found.api_version or 'no version'}, not as {plugin.api_version}"
        raise CommandError(f"the credential plugin {plugin.command} {why}: set the apiVersion in the kubeconfig")
    status = found.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise CommandError(f"the credential plugin {plugin.command} gave no token and no client certificate")
    return status


def with_folder(plugin: ExecPlugin, folder: Path) -> ExecPlugin:
    """Take a relative path of the program from the kubeconfig's folder, as kubectl does; a bare name is looked for on PATH."""
    if "/" not in plugin.command or plugin.command.startswith("/"):
        return plugin
    return msgspec.structs.replace(plugin, command=str(folder / plugin.command))
