"""ID tokens of an identity provider: what is accepted, as whom, and for how long. Real keys and signatures; `tests.e2e.test_oidc`
has a real provider.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import httpx
import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from app.api.app import create_app
from app.api.auth.authentication_configuration import JWTAuthenticator, from_flags
from app.api.auth.authenticator import AUTHENTICATED, User
from app.api.auth.claim_mappings import ClaimMapper, OidcError
from app.api.auth.identity_providers import IdentityProviders
from app.api.auth.oidc import MOST_KEYS, Verifier, issuer_of
from app.api.auth.oidc_keys import PAUSE_SECONDS, REFRESH_SECONDS, Key, Keys, usable_keys
from app.api.auth.signin_codes import TOKEN_LIFE, create_code, redeem_code
from app.api.streams import revocation
from app.registry.verbs.objects import Registry
from tests.api.people import bind
from tests.api.servers import listening
from tests.conftest import NO_TLS, Clock

ISSUER = "https://id.example.com"
FLAGS = {"issuer_url": ISSUER, "client_id": "jobplane", "groups_claim": "groups", "groups_prefix": "oidc:"}
ALGORITHMS = ("RS256", "ES256")
EC = ECKey.generate_key("P-256", {"kid": "ec"})
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER = ECKey.generate_key("P-256", {"kid": "ec"})
EVERY = {"RS256": RSA, "ES256": EC}


def claims(clock: Clock, **more: Any) -> dict[str, Any]:
    now = int(clock().timestamp())
    found = {"iss": ISSUER, "aud": "jobplane", "sub": "ada", "iat": now, "exp": now + 60, "groups": ["vision"]} | more
    return {name: value for name, value in found.items() if value is not None}


def signed(given: dict[str, Any], alg: str = "ES256", key: Any = None, **header: Any) -> str:
    key = key or EVERY[alg]
    return jws.serialize_compact(
        {"alg": alg, "kid": key.kid} | header,
        json.dumps(given).encode(),
        key,
        registry=jws.JWSRegistry(algorithms=[alg], strict_check_header=False),
    )


async def found(kid: str) -> Sequence[Key]:
    return [RSAKey.import_key(RSA.as_dict(private=False)), EC] if not kid else [k for k in (RSA, EC) if k.kid == kid]


def verifier(clock: Clock, **how: Any) -> Verifier:
    return Verifier(provider(), ALGORITHMS, found, clock, **how)


def provider(**how: Any) -> JWTAuthenticator:
    return from_flags(**{**FLAGS, **how})


@pytest.mark.parametrize("alg", EVERY)
async def test_a_good_token_is_a_user_with_groups_and_an_end(alg: str, clock: Clock) -> None:
    user = await verifier(clock).lookup(signed(claims(clock, jti="7", aud=["x", "jobplane"]), alg))

    assert user == User(
        name=f"{ISSUER}#ada",
        groups=("oidc:vision", AUTHENTICATED),
        extra={"authentication.kubernetes.io/credential-id": ("JTI=7",)},
        expires_at=clock() + timedelta(seconds=60),
    )


BAD = {
    "audience": {"aud": "another"},
    "no audience": {"aud": None},
    "issuer": {"iss": f"{ISSUER}/other"},
    "no end": {"exp": None},
    "end that is no number": {"exp": "soon"},
    "end that is not a number": {"exp": float("nan")},
    "not yet": {"nbf": 4102444800},
    "issued in the future": {"iat": 4102444800},
    "no name": {"sub": None},
    "name that is no string": {"sub": 7},
    "groups that are no strings": {"groups": [7]},
}


@pytest.mark.parametrize("given", BAD.values(), ids=BAD)
async def test_a_signed_token_with_a_wrong_claim_is_refused(given: dict[str, Any], clock: Clock) -> None:
    assert await verifier(clock).lookup(signed(claims(clock, **given))) is None


async def test_a_token_ends_at_its_time_even_if_it_was_verified_before(clock: Clock) -> None:
    tokens, token = verifier(clock), signed(claims(clock))
    assert await tokens.lookup(token)
    clock.move(seconds=59)
    assert await tokens.lookup(token)
    clock.move(seconds=1)
    assert await tokens.lookup(token) is None


async def test_a_signature_by_another_key_or_of_other_claims_is_refused(clock: Clock) -> None:
    good, forged = signed(claims(clock)), signed(claims(clock), key=OTHER)
    head, _, end = good.split(".")
    altered = base64.urlsafe_b64encode(json.dumps(claims(clock, sub="eve")).encode()).decode().rstrip("=")
    for token in (forged, f"{head}.{altered}.{end}", f"{head}.{good.split('.')[1]}."):
        assert await verifier(clock).lookup(token) is None


async def test_algorithms_that_are_not_allowed_are_refused(clock: Clock) -> None:
    payload = base64.urlsafe_b64encode(json.dumps(claims(clock)).encode()).decode().rstrip("=")
    for alg in ("none", "None", "HS256", "ES384"):
        head = base64.urlsafe_b64encode(json.dumps({"alg": alg, "kid": "ec"}).encode()).decode().rstrip("=")
        assert await verifier(clock).lookup(f"{head}.{payload}.") is None

    secret = OctKey.generate_key(256, {"kid": "ec"})
    assert await verifier(clock).lookup(signed(claims(clock), "HS256", secret)) is None
    # A key of one kind with the algorithm of another.
    head = base64.urlsafe_b64encode(json.dumps({"alg": "RS256", "kid": "ec"}).encode()).decode().rstrip("=")
    assert await verifier(clock).lookup(f"{head}.{payload}.AAAA") is None


async def test_a_header_that_brings_its_own_key_does_nothing(clock: Clock) -> None:
    brought = {
        "jwk": OTHER.as_dict(private=False),
        "jku": "https://evil.example/keys",
        "x5u": "https://evil.example/cert",
        "x5c": ["MIIB"],
    }
    for name, value in brought.items():
        assert await verifier(clock).lookup(signed(claims(clock), key=OTHER, **{name: value})) is None
    for kid in ("../../etc/passwd", "ec' or 1=1", "x" * 3000):
        assert await verifier(clock).lookup(signed(claims(clock), key=OTHER, kid=kid)) is None
    _, payload, end = signed(claims(clock)).split(".")
    for crit in (["exp"], 5, None, [["a"]]):
        head = json.dumps({"alg": "ES256", "kid": "ec", "crit": crit, "exp": 1}).encode()
        assert (
            await verifier(clock).lookup(f"{base64.urlsafe_b64encode(head).decode().rstrip('=')}.{payload}.{end}")
            is None
        )


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "a.b.c",
        "eyJ.eyJ.eyJ",
        "eyJ..",
        "eyJhbGciOiJub25lIn0.W10.",
        f"eyJ.{'W1tb' * 9000}.x",
        "eyJ.\ud800.x",
        "x.y",
    ],
)
async def test_what_is_no_token_of_the_issuer_is_not_the_verifiers(token: str, clock: Clock) -> None:
    assert issuer_of(token) == ""
    assert issuer_of(signed(claims(clock))) == ISSUER


async def test_nesting_without_end_is_refused(clock: Clock) -> None:
    nested = base64.urlsafe_b64encode(
        b'{"iss":"' + ISSUER.encode() + b'","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    ).decode()
    assert await verifier(clock).lookup(f"eyJhbGciOiJFUzI1NiIsImtpZCI6ImVjIn0.{nested}.AAAA") is None


async def test_a_token_without_a_key_id_is_tried_with_a_few_keys(clock: Clock) -> None:
    token = jws.serialize_compact({"alg": "ES256"}, json.dumps(claims(clock)).encode(), EC, algorithms=["ES256"])
    assert await verifier(clock).lookup(token)

    async def too_many(_: str) -> Sequence[Key]:
        return [*[RSA] * MOST_KEYS, EC]

    assert await Verifier(provider(), ALGORITHMS, too_many, clock).lookup(token) is None


async def test_no_more_tokens_are_remembered_than_there_is_room_for(clock: Clock) -> None:
    tokens = verifier(clock, most=3)
    made = [signed(claims(clock, jti=str(number), exp=int(clock().timestamp()) + 10 + number)) for number in range(5)]
    for token in made:
        assert await tokens.lookup(token)
    assert len(tokens._verified) == 3
    assert all(token not in repr(vars(tokens)) for token in made)
    clock.move(seconds=14)
    assert await tokens.lookup(signed(claims(clock)))
    assert len(tokens._verified) == 1


@pytest.mark.parametrize(
    ("how", "given", "name"),
    [
        ({}, {"sub": "ada"}, f"{ISSUER}#ada"),
        ({"username_prefix": "oidc:"}, {"sub": "ada"}, "oidc:ada"),
        ({"username_prefix": "-"}, {"sub": "ada"}, "ada"),
        ({"username_claim": "email"}, {"email": "a@b"}, "a@b"),
        ({"username_claim": "email"}, {"email": "a@b", "email_verified": True}, "a@b"),
        ({"username_claim": "email"}, {"email": "a@b", "email_verified": False}, None),
        ({"username_claim": "email"}, {"email": "a@b", "email_verified": "true"}, None),
        ({"username_prefix": "-"}, {"sub": "system:admin"}, None),
        ({"username_prefix": "sys"}, {"sub": "tem:admin"}, None),
        ({"username_prefix": "-"}, {"sub": "a\0b"}, None),
        ({"required_claims": {"hd": "x"}, "username_prefix": "-"}, {"sub": "a", "hd": "x"}, "a"),
        ({"required_claims": {"hd": "x"}}, {"sub": "a", "hd": ["x"]}, None),
        ({"required_claims": {"hd": "x"}}, {"sub": "a"}, None),
    ],
)
def test_names_follow_the_settings(how: dict[str, Any], given: dict[str, Any], name: str | None) -> None:
    mapper = ClaimMapper(provider(**how))
    if name is None:
        with pytest.raises(OidcError):
            mapper.user_of(given)
    else:
        assert mapper.user_of(given).name == name


@pytest.mark.parametrize(
    ("prefix", "given", "groups"),
    [
        ("", ["a", "b", "a"], ("a", "b")),
        ("", "a", ("a",)),
        ("g:", ["a"], ("g:a",)),
        ("", ["system:masters", "system:nodes", "a"], ("a",)),
        ("system:", ["masters"], ()),
        ("", None, ()),
    ],
)
def test_groups_of_the_cluster_itself_are_not_the_providers_to_give(prefix: str, given: Any, groups: Any) -> None:
    mapper = ClaimMapper(provider(groups_prefix=prefix))
    all_claims = {"sub": "ada"} | ({} if given is None else {"groups": given})
    assert mapper.user_of(all_claims).groups == (*groups, AUTHENTICATED)


def test_only_public_keys_that_sign_are_used() -> None:
    good = EC.as_dict(private=False)
    described = [
        good,
        RSA.as_dict(private=True),
        {**good, "use": "enc"},
        {**good, "x": "AA"},
        {"kty": "EC"},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": ["RSA"]},
        {},
    ]
    found = usable_keys(described)
    assert [key.kid for key in found] == ["ec", "rsa"]
    assert not any(key.is_private for key in found)


class Fetch:
    """A provider that counts what it is asked, and answers when it is let."""

    def __init__(self) -> None:
        self.keys: list[Key] = [EC]
        self.asked = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> Sequence[Key]:
        self.asked += 1
        await self.gate.wait()
        if self.error:
            raise self.error
        return self.keys


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_an_unknown_key_id_fetches_the_keys_at_most_so_often() -> None:
    fetch, clock = Fetch(), Seconds()
    keys = Keys(fetch, clock)
    assert list(await keys.find("ec")) == [EC]
    for number in range(100):
        assert list(await keys.find(f"guess {number}")) == []
    assert fetch.asked == 1

    fetch.keys = [RSA]
    clock.now += PAUSE_SECONDS
    assert list(await keys.find("rsa")) == [RSA]
    assert list(await keys.find("ec")) == []
    assert fetch.asked == 2


async def test_requests_that_need_keys_at_once_share_a_fetch_and_one_that_leaves_does_not_end_it() -> None:
    fetch = Fetch()
    fetch.gate.clear()
    keys = Keys(fetch, Seconds())
    asking = [asyncio.create_task(keys.find("ec")) for _ in range(10)]
    await asyncio.sleep(0)
    asking[0].cancel()
    fetch.gate.set()
    answers = await asyncio.gather(*asking[1:])
    assert (fetch.asked, answers) == (1, [[EC]] * 9)


async def test_a_provider_that_is_away_leaves_the_keys_that_are_known() -> None:
    fetch, clock = Fetch(), Seconds()
    keys = Keys(fetch, clock)
    fetch.error = httpx.ConnectError("refused")
    assert list(await keys.find("ec")) == []
    fetch.error, clock.now = None, PAUSE_SECONDS
    assert list(await keys.find("ec")) == [EC]

    fetch.error = httpx.ConnectError("refused")
    clock.now += REFRESH_SECONDS + 1
    fetch.gate.clear()  # and it does not even refuse: nobody who has a known key waits
    assert list(await keys.find("ec")) == [EC]
    fetch.gate.set()
    assert list(await keys.find("ec")) == [EC]


async def test_a_withdrawn_key_ends_though_no_token_names_another() -> None:
    fetch, clock = Fetch(), Seconds()
    keys = Keys(fetch, clock)
    assert list(await keys.find("ec")) == [EC]
    fetch.keys = [RSA]
    clock.now = REFRESH_SECONDS + 1
    await keys.find("ec")
    assert keys._fetching
    await keys._fetching
    assert list(await keys.find("ec")) == []


def trusted(clock: Clock) -> IdentityProviders:
    """The one provider, with its keys at hand."""
    made = IdentityProviders(clock, ALGORITHMS)
    made._verifiers = {ISSUER: verifier(clock)}
    return made


@pytest.fixture
async def url(registry: Registry, clock: Clock) -> AsyncIterator[str]:
    """Of an API that accepts the tokens."""
    async with listening(create_app(registry, provider=trusted(clock))) as port:
        yield f"http://127.0.0.1:{port}"


def holder(url: str, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=NO_TLS)


PODS = "/api/v1/namespaces/default/pods"


async def test_the_api_authorizes_the_user_of_a_token_by_its_group(
    url: str, admin: httpx.AsyncClient, clock: Clock
) -> None:
    async with holder(url, signed(claims(clock))) as ada, holder(url, signed(claims(clock, groups=[]))) as other:
        assert (await ada.get(PODS)).status_code == 403
        await bind(admin, "view", ["Group:oidc:vision"], "default")
        assert [(await each.get(PODS)).status_code for each in (ada, other)] == [200, 403]
        review = {"spec": {"token": signed(claims(clock))}}
        told = (await admin.post("/apis/authentication.k8s.io/v1/tokenreviews", json=review)).json()["status"]
        assert (told["authenticated"], told["user"]["username"]) == (True, f"{ISSUER}#ada")
        clock.move(seconds=60)
        assert (await ada.get(PODS)).status_code == 401


async def test_a_watch_ends_when_its_id_token_expires(
    url: str, admin: httpx.AsyncClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation, "SECONDS", 0.05)
    await bind(admin, "view", ["Group:oidc:vision"], "default")
    watching = {"watch": "1", "timeoutSeconds": "300"}
    async with (
        asyncio.timeout(60),
        holder(url, signed(claims(clock))) as ada,
        ada.stream("GET", PODS, params=watching) as answer,
    ):
        lines = answer.aiter_lines()
        await admin.post("/api/v1/namespaces/default/pods", json=POD)
        assert json.loads(await anext(lines))["type"] == "ADDED"
        clock.move(seconds=60)
        last = [json.loads(line) async for line in lines][-1]
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)


POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}


async def test_a_page_that_was_opened_with_an_id_token_is_signed_out_with_it(registry: Registry) -> None:
    bounded = User(name="ada", expires_at=registry.now() + timedelta(minutes=20))
    for user, most in ((bounded, timedelta(minutes=20)), (User(name="eve"), TOKEN_LIFE)):
        signed_in = await redeem_code(registry, await create_code(registry, user))
        assert signed_in.expires_at <= registry.now() + most
