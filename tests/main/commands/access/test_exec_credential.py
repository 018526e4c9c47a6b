"""Credential plugins: real programs, and what becomes of those that do not keep to the protocol."""

import json
from pathlib import Path

import pytest

from app.main.cli_errors import CommandError
from app.main.commands.access.exec_credential import ExecPlugin, Variable, run_plugin, with_folder

V1 = "client.authentication.k8s.io/v1"


def program(folder: Path, script: str) -> str:
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def answer(version: str = V1, **status: str) -> str:
    return f"echo '{json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status})}'"


def test_a_plugin_gets_its_arguments_variables_and_the_cluster(tmp_path: Path) -> None:
    script = f'echo "$1 $WHO $KUBERNETES_EXEC_INFO" > {tmp_path}/told\n{answer(token="secret")}'
    plugin = ExecPlugin(
        program(tmp_path, script), V1, ("get-token",), (Variable("WHO", "ada"),), provide_cluster_info=True
    )
    assert run_plugin(plugin, {"server": "https://a"}).token == "secret"
    word, who, told = (tmp_path / "told").read_text().split(" ", 2)
    assert (word, who, json.loads(told)["spec"]["cluster"]) == ("get-token", "ada", {"server": "https://a"})


def test_a_plugin_may_give_a_client_certificate(tmp_path: Path) -> None:
    script = answer(clientCertificateData="CERT", clientKeyData="KEY")
    found = run_plugin(ExecPlugin(program(tmp_path, script), V1), {})
    assert (found.client_certificate_data, found.client_key_data, found.token) == ("CERT", "KEY", "")


@pytest.mark.parametrize(
    ("script", "version", "words"),
    [
        ("exit 3", V1, "failed with exit code 3"),
        ("echo hello", V1, "printed no ExecCredential"),
        (answer(token=""), V1, "gave no token and no client certificate"),
        (answer(clientCertificateData="CERT"), V1, "gave no token and no client certificate"),
        (answer(f"{V1}beta1", token="x"), V1, "answered as client.authentication.k8s.io/v1beta1"),
        (answer(token="x"), "", "has no apiVersion"),
        (answer(token="x"), "client.authentication.k8s.io/v1alpha1", "has no apiVersion"),
    ],
)
def test_what_does_not_keep_to_the_protocol_ends_with_one_line(
    tmp_path: Path, script: str, version: str, words: str
) -> None:
    with pytest.raises(CommandError, match=words) as refused:
        run_plugin(ExecPlugin(program(tmp_path, script), version), {})
    assert len(str(refused.value).splitlines()) == 1


def test_a_program_that_is_not_there_is_told_with_its_hint(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot run the credential plugin .*: get it from your admin$"):
        run_plugin(ExecPlugin(str(tmp_path / "none"), V1, install_hint="get it\nfrom your admin"), {})


@pytest.mark.parametrize(("command", "found"), [("aws", "aws"), ("/bin/aws", "/bin/aws"), ("./aws", "/home/ada/aws")])
def test_only_a_relative_path_is_taken_from_the_kubeconfigs_folder(command: str, found: str) -> None:
    assert with_folder(ExecPlugin(command), Path("/home/ada")).command == found
