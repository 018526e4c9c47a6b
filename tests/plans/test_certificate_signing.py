"""Which requests for certificates are signed, for how long, and when they go."""

from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from app.kinds.auth.certificate_signing_request import (
    APPROVED,
    CLIENT,
    DENIED,
    FAILED,
    KUBELET_CLIENT,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
)
from app.kinds.auth.certificate_signing_request_schema import (
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
)
from app.machinery.base import ObjectMeta
from app.plans.certificate_signing import Refusal, Signing, approve, decide, ends_at
from tests.build import NOW

LONGEST = timedelta(days=30)
KEY = ec.generate_private_key(ec.SECP256R1())


def pem(common_name: str = "ada", *groups: str, names: str = "", key: Any = KEY) -> bytes:
    name = x509.NameOID
    subject = [x509.NameAttribute(name.ORGANIZATION_NAME, each) for each in groups]
    subject += [x509.NameAttribute(name.COMMON_NAME, common_name)] if common_name else []
    builder = x509.CertificateSigningRequestBuilder(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(names)]), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def condition(type_: str, at: Any = NOW) -> CertificateSigningRequestCondition:
    return CertificateSigningRequestCondition(type=type_, status="True", last_update_time=at)


def csr(
    request: bytes, *conditions: str, signer: str = CLIENT, certificate: bytes = b"", **spec: Any
) -> CertificateSigningRequest:
    usual = {"usages": ("client auth", "digital signature")}
    return CertificateSigningRequest(
        metadata=ObjectMeta(name="ada", creation_timestamp=NOW),
        spec=CertificateSigningRequestSpec(request=request, signer_name=signer, **(usual | spec)),
        status=CertificateSigningRequestStatus(tuple(map(condition, conditions)), certificate),
    )


NODE = pem("system:node:n1", "system:nodes")


@pytest.mark.parametrize(
    ("given", "life"),
    [
        (csr(pem(), APPROVED), LONGEST),
        (csr(pem(), APPROVED, expiration_seconds=600), timedelta(minutes=10)),
        (csr(pem(), APPROVED, expiration_seconds=2**31 - 1), LONGEST),
        (csr(pem("ada", "vision", "system:nodes"), APPROVED), LONGEST),
        (csr(NODE, APPROVED, signer=KUBELET_CLIENT), LONGEST),
    ],
)
def test_an_approved_request_is_signed(given: CertificateSigningRequest, life: timedelta) -> None:
    decision = decide(given, LONGEST)
    assert isinstance(decision, Signing)
    assert decision.life == life


@pytest.mark.parametrize(
    "given",
    [
        csr(pem()),
        csr(pem(), DENIED),
        csr(pem(), APPROVED, FAILED),
        csr(pem(), APPROVED, certificate=b"x"),
        csr(pem(), APPROVED, signer="kubernetes.io/kubelet-serving"),
        csr(pem(), APPROVED, signer="example.com/own"),
    ],
)
def test_what_is_not_due_or_not_ours_is_left_alone(given: CertificateSigningRequest) -> None:
    assert decide(given, LONGEST) is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (csr(pem("ada", "system:masters"), APPROVED), "system:masters group is not allowed"),
        (csr(pem(""), APPROVED), "no common name"),
        (csr(pem(), APPROVED, usages=("server auth", "client auth")), "usages must be client auth"),
        (csr(pem(), APPROVED, usages=("digital signature",)), "usages must be client auth"),
        (csr(pem(key=rsa.generate_private_key(65537, 1024)), APPROVED), "fewer than 2048 bits"),
        (csr(b"nonsense", APPROVED), "cannot be read"),
        (csr(pem(), APPROVED, signer=KUBELET_CLIENT), "subject organization is not system:nodes"),
        (csr(pem("ada", "system:nodes"), APPROVED, signer=KUBELET_CLIENT), "does not begin with system:node:"),
        (csr(pem("system:node:", "system:nodes"), APPROVED, signer=KUBELET_CLIENT), "does not begin with system:node:"),
        (csr(NODE, APPROVED, signer=KUBELET_CLIENT, usages=("client auth",)), "must have digital signature"),
        (
            csr(pem("system:node:n1", "system:nodes", names="x"), APPROVED, signer=KUBELET_CLIENT),
            "no subject alternative names",
        ),
    ],
)
def test_what_no_signer_signs_fails(given: CertificateSigningRequest, why: str) -> None:
    decision = decide(given, LONGEST)
    assert isinstance(decision, Refusal)
    assert why in decision.message


@pytest.mark.parametrize(("conditions", "hours"), [((), 24), ((APPROVED,), 1), ((DENIED,), 1), ((APPROVED, FAILED), 1)])
def test_requests_go_an_hour_after_their_decision_or_after_a_day(conditions: tuple[str, ...], hours: int) -> None:
    assert ends_at(csr(pem(), *conditions)) == NOW + timedelta(hours=hours)


def own(request: bytes = NODE, *conditions: str, **spec: Any) -> CertificateSigningRequest:
    """A request of the node n1."""
    usual = {"username": "system:node:n1", "groups": ("system:nodes",), "signer": KUBELET_CLIENT}
    return csr(request, *conditions, **(usual | spec))


def test_a_node_is_approved_for_itself_and_then_signed() -> None:
    approved = approve(own(), NOW)
    assert approved is not None
    (condition,) = approved.status.conditions
    assert (condition.type, condition.status, condition.reason, condition.last_update_time) == (
        "Approved",
        "True",
        "AutoApproved",
        NOW,
    )
    assert isinstance(decide(approved, LONGEST), Signing)


@pytest.mark.parametrize(
    "asked",
    [
        own(username="system:node:n2"),
        own(username="ada"),
        own(groups=("system:authenticated",)),
        own(signer=CLIENT),
        own(pem("system:node:n1")),
        own(pem("system:node:n1", "system:nodes", "system:masters")),
        own(pem("system:node:n1", "system:nodes", names="x")),
        own(usages=("client auth",)),
        own(b"no request"),
        own(NODE, DENIED),
        own(NODE, FAILED),
        own(NODE, APPROVED),
    ],
)
def test_nobody_is_approved_for_another(asked: CertificateSigningRequest) -> None:
    assert approve(asked, NOW) is None
