"""People sign in by a real identity provider: kubectl and jobplane by an exec plugin, rights by groups, keys that change."""

import json
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import preloaded
from tests.e2e.cluster import Cluster, environment, until
from tests.e2e.kubectl import newest
from tests.idp.provider import CLIENT, OTHER_CLIENT, IdentityProvider, browser_command, confirm_device

ROOT = Path(__file__).parents[2]
PODS = "/api/v1/namespaces/default/pods"


@dataclass
class Site:
    """A provider, a Jobplane that trusts it, and the home of a person who signs in there."""

    provider: IdentityProvider
    cluster: Cluster
    home: Path

    @property
    def kubeconfig(self) -> Path:
        """As the documentation has it made."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        arguments = [f"--oidc-issuer-url={self.provider.issuer}", f"--oidc-client-id={CLIENT}"]
        arguments += [f"--oidc-ca-file={self.provider.ca_file}", "--scope=groups", "--scope=email"]
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable"}
        plugin |= {"command": str(preloaded.program()), "args": ["login", *arguments]}
        config["users"] = [{"name": "jobplane", "user": {"exec": plugin}}]
        path = self.home / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    @property
    def cache(self) -> Path:
        return self.home / ".jobplane" / "login"

    def sign_ins(self) -> int:
        log = self.home / "browser.log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def environment(self) -> dict[str, str]:
        shown = browser_command(self.provider, self.home)
        return environment(HOME=str(self.home), KUBECONFIG=str(self.kubeconfig), BROWSER=shown, PYTHONPATH=str(ROOT))

    def run(self, *command: str) -> str:
        ran = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def get(self, token: str) -> int:
        with self.cluster.client(token) as client:
            return client.get(PODS).status_code


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("oidc")
    with IdentityProvider(folder) as provider:
        token = provider.token()
        provider.stop()
        options = [f"--oidc-issuer-url={provider.issuer}", f"--oidc-client-id={CLIENT}", "--oidc-signing-algs=ES256"]
        options += [f"--oidc-ca-file={provider.ca_file}", "--oidc-username-prefix=oidc:"]
        options += ["--oidc-groups-claim=groups", "--oidc-groups-prefix=oidc:"]
        with Cluster(folder / "data", *options) as cluster:  # starts though the provider is down
            made = Site(provider, cluster, folder)
            assert made.get(token) == 401
            assert made.get(cluster.token()) == 200
            provider.start()
            _allow_group(cluster)
            until(lambda: made.get(token) == 200, 60, "the provider's keys are found once it is up")
            yield made
        assert cluster.surprises() == ""


def _allow_group(cluster: Cluster) -> None:
    subject = {"kind": "Group", "name": "oidc:vision", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": "vision"}, "roleRef": role, "subjects": [subject]}
    with cluster.client() as client:
        client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", json=body).raise_for_status()


def test_kubectl_and_jobplane_sign_in_by_the_plugin_and_the_group_gives_the_rights(site: Site) -> None:
    kubectl = str(newest())
    assert "No resources found" in site.run("sh", "-c", f"{kubectl} get pods 2>&1")
    assert site.run(kubectl, "auth", "can-i", "list", "pods").strip() == "yes"
    who = json.loads(site.run(kubectl, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert (who["username"], who["groups"]) == (
        "oidc:ada",
        ["oidc:vision", "oidc:system:masters", "system:authenticated"],
    )
    denied = f"{kubectl} create configmap x 2>&1; test $? != 0"
    assert 'User "oidc:ada" cannot create resource "configmaps"' in site.run("sh", "-c", denied)
    site.run(str(preloaded.program()), "list")
    assert site.sign_ins() == 1  # of six commands

    (kept,) = site.cache.glob("*.json")
    assert (stat.S_IMODE(kept.stat().st_mode), stat.S_IMODE(site.cache.stat().st_mode)) == (0o600, 0o700)
    ended = json.loads(kept.read_text()) | {"expires_at": 0}
    kept.write_text(json.dumps(ended))
    site.run(kubectl, "get", "pods")
    renewed = json.loads(kept.read_text())
    assert site.sign_ins() == 1  # by the refresh token
    assert renewed["refresh_token"] != ended["refresh_token"]

    kept.write_text(json.dumps(ended))  # a refresh token that was used: the provider wants a sign-in
    site.run(kubectl, "get", "pods")
    assert site.sign_ins() == 2


def test_a_person_without_a_browser_signs_in_by_a_code(site: Site, tmp_path: Path) -> None:
    command = [str(preloaded.program()), "login", "--device", "--data-dir", str(tmp_path)]
    command += [f"--oidc-issuer-url={site.provider.issuer}", f"--oidc-client-id={CLIENT}", "--scope=groups"]
    command += [f"--oidc-ca-file={site.provider.ca_file}"]
    with subprocess.Popen(
        command, env=site.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as signing:
        assert signing.stderr
        assert re.search("confirm the code [A-Z-]+:", signing.stderr.readline())
        with site.provider.client() as browser:
            confirm_device(browser, signing.stderr.readline().strip())
        out, err = signing.communicate(timeout=120)
    assert signing.returncode == 0, err
    credential = json.loads(out)
    assert (credential["apiVersion"], credential["kind"]) == ("client.authentication.k8s.io/v1", "ExecCredential")
    assert site.get(credential["status"]["token"]) == 200


def test_users_are_told_apart_and_tokens_for_others_are_refused(site: Site) -> None:
    assert site.get(site.provider.token("bob")) == 403
    assert site.get(site.provider.token("ada", OTHER_CLIENT)) == 401
    head, payload, signature = site.provider.token().split(".")
    assert site.get(f"{head}.{payload}.{signature[::-1]}") == 401


def test_keys_are_rotated_under_way_and_a_provider_that_is_down_holds_nobody(site: Site) -> None:
    before = site.provider.token()
    assert site.get(before) == 200
    site.provider.rotate()
    after = site.provider.token()
    until(lambda: site.get(after) == 200, 60, "the new key is found")
    assert site.get(before) == 200  # it was verified, and ends at its time

    site.provider.stop()
    assert site.get(site.cluster.token()) == 200
    assert site.get(after) == 200
    site.provider.start()


def _write_configuration(path: Path, *providers: dict[str, Any]) -> None:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    path.with_suffix(".new").write_text(yaml.safe_dump({**head, "jwt": list(providers)}))
    path.with_suffix(".new").replace(path)


def test_two_providers_by_a_file_that_is_read_again(tmp_path: Path) -> None:
    """One names its users by claims, the other by expressions, and lets only some in."""
    with IdentityProvider(tmp_path / "a") as first, IdentityProvider(tmp_path / "b", "RS256") as second:

        def trusting(provider: IdentityProvider, *audiences: str, **rules: Any) -> dict[str, Any]:
            issuer = {"url": provider.issuer, "audiences": list(audiences), "audienceMatchPolicy": "MatchAny"}
            return {"issuer": {**issuer, "certificateAuthority": provider.ca_file.read_text()}, **rules}

        named = trusting(first, CLIENT, claimMappings={"username": {"claim": "sub", "prefix": "a:"}})
        by_rules = trusting(
            second,
            CLIENT,
            OTHER_CLIENT,
            claimMappings={
                "username": {"expression": "'b:' + claims.email.split('@')[0]"},
                "groups": {"expression": "claims.groups.map(each, 'b:' + each)"},
            },
            claimValidationRules=[{"expression": "claims.email_verified", "message": "the e-mail is not verified"}],
            userValidationRules=[{"expression": "'b:vision' in user.groups"}],
        )
        file = tmp_path / "authentication.yaml"
        _write_configuration(file, named, by_rules)
        ada, bob, other = first.token("ada"), second.token("bob"), first.token("ada", OTHER_CLIENT)
        same = second.token("ada", OTHER_CLIENT)
        with Cluster(tmp_path / "data", f"--authentication-config={file}") as cluster:

            def who(token: str) -> str:
                with cluster.client(token) as client:
                    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
                    answer = client.post(path, json={})
                    return str(answer.json()["status"]["userInfo"]["username"]) if answer.is_success else ""

            assert until(lambda: who(ada), 60, "the first provider's keys are found") == "a:ada"
            assert until(lambda: who(same), 60, "the second provider's keys are found") == "b:ada"
            assert (who(bob), who(other)) == ("", "")

            _write_configuration(file, named)
            until(lambda: not who(same), 60, "the second provider is not trusted any more")
            assert who(ada) == "a:ada"
            file.write_text("nonsense")
            until(lambda: "trusting who was trusted" in cluster.log.read_text(), 60, "the file is refused")
            assert (who(ada), who(same)) == ("a:ada", "")
            _write_configuration(file, named, by_rules)
            until(lambda: who(same), 60, "the second provider is trusted again")
        assert cluster.surprises() == ""


def test_wrong_settings_are_told_in_one_line(site: Site) -> None:
    flags = ["--oidc-issuer-url", "https://id.example.com", "--oidc-client-id", "jobplane"]
    for options, line in (
        (["--oidc-issuer-url", "http://id.example.com"], "must use https"),
        (["--oidc-issuer-url", "https://id.example.com"], "--oidc-issuer-url and --oidc-client-id need each other"),
        (["--oidc-signing-algs", "HS256"], "HS256 is not accepted"),
        (["--oidc-required-claim", "hd"], "hd is not a claim such as hd=example.com"),
        (["--authentication-config", "/none"], "--authentication-config: /none: cannot be read: No such file"),
        (["--oidc-ca-file", "/none", *flags], "--oidc-ca-file: /none: No such file"),
        (
            ["--authentication-config", "/none", *flags],
            "--authentication-config and --oidc-issuer-url exclude each other",
        ),
    ):
        command = [str(preloaded.program()), "api", "--database-url", "postgresql://none/none", *options]
        ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        assert (ran.returncode in (2, 78), line in ran.stderr, len(ran.stderr.splitlines())) == (True, True, 1), (
            ran.stderr
        )
