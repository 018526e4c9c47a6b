"""AuthenticationConfiguration: what a file may say, and whom tokens stand for by it. `tests.e2e.test_oidc` has real providers."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.auth.authentication_configuration import JWTAuthenticator, read_configuration
from app.api.auth.authenticator import AUTHENTICATED
from app.api.auth.claim_mappings import ClaimMapper, OidcError
from app.api.auth.identity_providers import AuthenticationReload, IdentityProviders
from tests.api.auth.test_oidc import claims, signed
from tests.conftest import Clock

USERNAME = {"claim": "sub", "prefix": "one:"}
ISSUER = {"url": "https://id.example.com", "audiences": ["jobplane"]}


def a_provider(issuer: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"issuer": {**ISSUER, **(issuer or {})}, "claimMappings": {"username": USERNAME}, **more}


def a_file(*providers: dict[str, Any], **more: Any) -> bytes:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return yaml.safe_dump({**head, "jwt": list(providers), **more}).encode()


def read(**provider: Any) -> JWTAuthenticator:
    (found,) = read_configuration(a_file(a_provider(**provider)))
    return found


def test_a_file_of_kubernetes_documentation_is_taken() -> None:
    (found,) = read_configuration(
        b"""
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://example.com
    discoveryURL: https://discovery.example.com/.well-known/openid-configuration
    audiences: [my-app, my-other-app]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.com
  - expression: 'claims.hd == "example.com"'
    message: the hd claim must be set to example.com
  - expression: 'claims.exp - claims.nbf <= 86400'
    message: total token lifetime must not exceed 24 hours
  claimMappings:
    username:
      expression: 'claims.username + ":external-user"'
    groups:
      expression: 'claims.roles.split(",")'
    uid:
      expression: 'claims.sub'
    extra:
    - key: 'example.com/tenant'
      valueExpression: 'claims.tenant'
  userValidationRules:
  - expression: "!user.username.startsWith('system:')"
    message: 'username cannot used reserved system: prefix'
  - expression: "user.groups.all(group, !group.startsWith('system:'))"
    message: 'groups cannot used reserved system: prefix'
"""
    )
    token = {
        "hd": "example.com",
        "username": "foo",
        "roles": "user,admin",
        "sub": "auth",
        "tenant": "72f988bf",
        "jti": "7",
    }
    user = ClaimMapper(found).user_of({**token, "exp": 200, "nbf": 100})

    assert (user.name, user.uid, user.groups) == ("foo:external-user", "auth", ("user", "admin", AUTHENTICATED))
    assert user.extra == {
        "example.com/tenant": ("72f988bf",),
        "authentication.kubernetes.io/credential-id": ("JTI=7",),
    }
    for broken, why in (
        ({"exp": 90_000}, "total token lifetime"),
        ({"hd": "other"}, "claim hd is not example.com"),
        ({"username": 7}, "cannot be evaluated"),
        ({"roles": None}, "cannot be evaluated"),
    ):
        with pytest.raises(OidcError, match=why):
            ClaimMapper(found).user_of({**token, "exp": 200, "nbf": 100, **broken})


WRONG: dict[str, tuple[bytes, str]] = {
    "no file": (b"", "apiVersion: Required value"),
    "no yaml": (b"{", "yaml: "),
    "another kind": (a_file(kind="Policy"), 'kind: Unsupported value: "Policy"'),
    "another version": (a_file(apiVersion="v1"), "apiVersion: Unsupported value"),
    "a misspelt field": (a_file(a_provider(claimsMappings={})), 'unknown field "jwt[0].claimsMappings"'),
    "plain http": (a_file(a_provider({"url": "http://id.example.com"})), "jwt[0].issuer.url: Invalid value"),
    "a url with a query": (a_file(a_provider({"url": "https://id.example.com?a=b"})), "must not contain a username"),
    "a port that is none": (a_file(a_provider({"url": "https://id.example.com:x"})), "is no URL"),
    "two of one issuer": (a_file(a_provider(), a_provider()), "jwt[1].issuer.url: Duplicate value"),
    "no audience": (a_file(a_provider({"audiences": []})), "at least one jwt audience is required"),
    "several audiences": (a_file(a_provider({"audiences": ["a", "b"]})), "must be set to MatchAny"),
    "a discovery like the issuer": (a_file(a_provider({"discoveryURL": ISSUER["url"]})), "must be different from URL"),
    "an egress selector": (a_file(a_provider({"egressSelectorType": "cluster"})), "there are no egress selectors"),
    "no user name": (a_file(a_provider(claimMappings={})), "claimMappings.username: Required value"),
    "a claim without prefix": (a_file(a_provider(claimMappings={"username": {"claim": "sub"}})), "prefix is required"),
    "both": (
        a_file(a_provider(claimMappings={"username": {"claim": "sub", "prefix": "", "expression": "claims.sub"}})),
        "can't both be set",
    ),
    "an e-mail that nobody looked at": (
        a_file(a_provider(claimMappings={"username": {"expression": "claims.email"}})),
        "claims.email_verified must be used",
    ),
    "a reserved key": (
        a_file(
            a_provider(
                claimMappings={"username": USERNAME, "extra": [{"key": "x.k8s.io/a", "valueExpression": "claims.a"}]}
            )
        ),
        "reserved for Kubernetes use",
    ),
    "a key without domain": (
        a_file(
            a_provider(claimMappings={"username": USERNAME, "extra": [{"key": "a", "valueExpression": "claims.a"}]})
        ),
        "a lowercase path with a domain",
    ),
    "a rule without anything": (a_file(a_provider(claimValidationRules=[{}])), "exactly one of claim and expression"),
    "strangers": (a_file(anonymous={"enabled": True}), "anonymous.enabled: Forbidden"),
    "too many": (a_file(*({"issuer": {}} for _ in range(65))), "jwt: Too many: 65"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_with_a_fault_is_refused_in_one_line(wrong: str) -> None:
    text, why = WRONG[wrong]
    with pytest.raises(ValueError, match=r".") as raised:
        read_configuration(text)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"claimValidationRules": [{"expression": "claims.a =="}]}, "claimValidationRules[0].expression: "),
        ({"claimValidationRules": [{"expression": "user.username == 'a'"}]}, "undeclared reference to 'user.username'"),
        ({"userValidationRules": [{"expression": "'text'"}]}, "must evaluate to bool"),
    ],
)
def test_an_expression_that_cannot_be_compiled_is_named(rules: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        ClaimMapper(read(**rules))
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("username", "groups", "given"),
    [
        ("claims.sub", "[]", {"sub": "system:admin"}),
        ("'system:' + claims.sub", "[]", {"sub": "node:a"}),
        ("claims.sub", "[]", {"sub": ""}),
        ("claims.sub", "[1]", {"sub": "ada"}),
        ("claims.sub", "claims.nothing", {"sub": "ada"}),
        ("claims.sub + '\\u0000'", "[]", {"sub": "ada"}),
    ],
)
def test_names_that_no_provider_may_give_are_refused(username: str, groups: str, given: dict[str, Any]) -> None:
    mapper = ClaimMapper(read(claimMappings={"username": {"expression": username}, "groups": {"expression": groups}}))
    with pytest.raises(OidcError):
        mapper.user_of(given)


def test_groups_of_the_cluster_itself_are_left_out_of_what_an_expression_gives() -> None:
    groups = {"expression": "['system:masters', claims.sub, 'system:nodes', '']"}
    mapper = ClaimMapper(read(claimMappings={"username": USERNAME, "groups": groups}))

    assert mapper.user_of({"sub": "ada"}).groups == ("ada", AUTHENTICATED)


def write(path: Path, text: bytes) -> None:
    path.with_suffix(".new").write_bytes(text)
    os.replace(path.with_suffix(".new"), path)


async def test_the_file_is_taken_in_again_and_a_wrong_one_changes_nothing(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    path, providers, now = tmp_path / "authentication.yaml", IdentityProviders(clock), datetime.now(UTC)
    reload = AuthenticationReload(path, providers)
    with pytest.raises(ValueError, match="cannot be read"):
        reload.load()
    other = a_provider({"url": "https://other.example.com"})
    write(path, a_file(a_provider(), other))
    reload.load()
    ours, theirs = signed(claims(clock)), signed(claims(clock, iss="https://other.example.com"))
    kept = providers._verifiers["https://id.example.com"]
    assert providers.is_issuer_of(ours)
    assert providers.is_issuer_of(theirs)

    write(path, a_file(a_provider()))
    await reload.run_once(now)
    assert providers.is_issuer_of(ours)
    assert not providers.is_issuer_of(theirs)
    assert await providers.lookup(theirs) is None
    assert providers._verifiers["https://id.example.com"] is kept  # with its keys, and the tokens that it has verified

    for wrong in (b"nonsense", a_file(a_provider({"certificateAuthority": "no PEM"})), None):
        caplog.clear()
        write(path, wrong) if wrong else path.unlink()
        for _ in range(3):
            await reload.run_once(now)
        assert providers.is_issuer_of(ours)
        assert caplog.text.count("cannot use the authentication configuration") == 1
    write(path, a_file(other))
    await reload.run_once(now)
    assert [providers.is_issuer_of(each) for each in (ours, theirs)] == [False, True]
