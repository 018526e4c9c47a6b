"""Kubeconfig files: merged as kubectl does, and refused in one line."""

from base64 import b64encode
from pathlib import Path

import pytest

from app.main.cli_errors import CommandError
from app.main.commands.access.exec_credential import ExecPlugin, Variable
from app.main.commands.access.kubeconfig import choose, default_paths, merge, parse

TEXT = f"""
current-context: here
clusters:
- name: a
  cluster: {{server: "https://a:6443/", certificate-authority-data: {b64encode(b"PEM").decode()}, tls-server-name: api}}
- name: b
  cluster: {{server: "https://b", certificate-authority: ca.crt, insecure-skip-tls-verify: true}}
users:
- name: alice
  user: {{token: secret}}
- name: file
  user: {{tokenFile: token}}
- name: program
  user: {{exec: {{command: bin/aws, apiVersion: client.authentication.k8s.io/v1, args: null, env: [{{name: A, value: b}}]}}}}
- name: empty
  user: {{}}
contexts:
- name: here
  context: {{cluster: a, user: alice, namespace: vision}}
- name: there
  context: {{cluster: b, user: file}}
- name: aws
  context: {{cluster: a, user: program}}
- name: nobody
  context: {{cluster: a, user: empty}}
- name: lost
  context: {{cluster: c}}
"""


def test_the_current_context_and_one_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    config = parse(TEXT, tmp_path / "config")
    here = choose(config, "", "config")
    assert (here.server, here.token, here.ca_data, here.tls_name, here.namespace) == (
        "https://a:6443", "secret", "PEM", "api", "vision",
    )  # fmt: skip
    there = choose(config, "there", "config")
    assert (there.token, there.ca_file, there.insecure, there.namespace) == (
        "from-file", tmp_path / "ca.crt", True, "default",
    )  # fmt: skip


def test_a_program_is_found_from_the_files_folder() -> None:
    plugin = choose(parse(TEXT, Path("/home/ada/.kube/config")), "aws", "config").plugin
    assert plugin == ExecPlugin(
        command="/home/ada/.kube/bin/aws", api_version="client.authentication.k8s.io/v1", env=(Variable("A", "b"),)
    )


def test_of_several_files_the_first_that_names_a_thing_counts() -> None:
    second = "current-context: other\nusers:\n- name: alice\n  user: {token: later}\ncontexts: null\n"
    merged = merge([parse("users: []", Path("x")), parse(TEXT, Path("y")), parse(second, Path("z"))])
    assert (merged.current_context, choose(merged, "", "x").token) == ("here", "secret")


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ("none", "config has no context none: pass another --context"),
        ("lost", "config: context lost names no cluster of it"),
        (
            "nobody",
            "config: user empty has no credentials: set `token`, `tokenFile`, `client-certificate` or `exec` there",
        ),
    ],
)
def test_what_is_missing_is_told_in_one_line(context: str, words: str) -> None:
    with pytest.raises(CommandError) as refused:
        choose(parse(TEXT, Path("config")), context, "config")
    assert str(refused.value) == words


@pytest.mark.parametrize("server", ["https://h:abc", "https://[bad", "nonsense", "ftp://h", "https://a b"])
def test_a_server_that_is_no_url_is_told_with_its_cluster(server: str) -> None:
    text = f"""
current-context: here
contexts: [{{name: here, context: {{cluster: ours}}}}]
clusters: [{{name: ours, cluster: {{server: "{server}"}}}}]
"""
    with pytest.raises(CommandError) as refused:
        choose(parse(text, Path("config")), "", "config")
    words = f"config: server of cluster ours: {server} is not a URL such as https://192.0.2.10:6443"
    assert str(refused.value) == words


@pytest.mark.parametrize("text", ["a: [", "clusters: 5", "just a text"])
def test_a_file_that_is_no_kubeconfig_is_named(text: str) -> None:
    with pytest.raises(CommandError, match=r"^config is not a kubeconfig \(.*\): pass another$"):
        parse(text, Path("config"))


def test_the_variable_comes_before_the_home_and_the_home_before_the_data_folder(tmp_path: Path) -> None:
    of_home, of_data = tmp_path / ".kube" / "config", Path("data/kubeconfig")
    assert default_paths("/a::/b", tmp_path, Path("data")) == [Path("/a"), Path("/b")]
    assert default_paths("", tmp_path, Path("data")) == [of_data]
    of_home.parent.mkdir()
    of_home.touch()
    assert default_paths("", tmp_path, Path("data")) == [of_home]
