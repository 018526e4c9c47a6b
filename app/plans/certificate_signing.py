"""Signing of client certificates: which approved requests the cluster's authority signs, and when requests are deleted.

Pure. `app.controllers.auth.certificate_signing` carries it out. The rules are those of Kubernetes' signers
kubernetes.io/kube-apiserver-client and kube-apiserver-client-kubelet, and of its csrcleaner.
"""

from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from app.kinds.auth.certificate_signing_request import (
    APPROVED,
    CLIENT,
    DENIED,
    FAILED,
    KUBELET_CLIENT,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    condition_of,
    parse_request,
)

PENDING_LIFE = timedelta(hours=24)
DECIDED_LIFE = timedelta(hours=1)
MASTERS, NODES, NODE_PREFIX = "system:masters", "system:nodes", "system:node:"
_CLIENT_USAGES = frozenset({"client auth", "digital signature", "key encipherment"})
_SHORTEST_RSA = 2048


class Signing(msgspec.Struct, frozen=True):
    """A certificate to sign: of this request, for so long."""

    request: x509.CertificateSigningRequest
    life: timedelta


class Refusal(msgspec.Struct, frozen=True):
    """A request that can never be signed; the text says why."""

    message: str


def decide(csr: CertificateSigningRequest, longest: timedelta) -> Signing | Refusal | None:
    """Decide what to do with a request; None: nothing, as it waits, has ended, or is another signer's."""
    is_due = condition_of(csr, APPROVED) and not csr.status.certificate and not condition_of(csr, FAILED)
    if csr.spec.signer_name not in (CLIENT, KUBELET_CLIENT) or not is_due or condition_of(csr, DENIED):
        return None
    try:
        request = parse_request(csr.spec.request)
        key = request.public_key()
    except Exception as error:  # of a request that was stored when the rules were others
        return Refusal(f"the request cannot be read: {error}")
    if why := _find_fault(csr, request) or _find_key_fault(key):
        return Refusal(why)
    asked = csr.spec.expiration_seconds
    return Signing(request, min(timedelta(seconds=asked), longest) if asked is not None else longest)


def approve(csr: CertificateSigningRequest, now: datetime) -> CertificateSigningRequest | None:
    """Return the request approved, as Kubernetes' csrapproving does, if it is a node's for itself; None if not, or decided."""
    spec = csr.spec
    if (
        spec.signer_name != KUBELET_CLIENT
        or csr.status.certificate
        or csr.status.conditions
        or NODES not in spec.groups
    ):
        return None
    try:
        request = parse_request(spec.request)
    except ValueError:
        return None
    if _find_fault(csr, request) or names_of(request.subject)[0] != spec.username:
        return None
    approved = CertificateSigningRequestCondition(
        type=APPROVED,
        status="True",
        reason="AutoApproved",
        message="Auto approving self kubelet client certificate after SubjectAccessReview.",
        last_update_time=now,
        last_transition_time=now,
    )
    return replace(csr, status=replace(csr.status, conditions=(approved,)))


def find_subject_fault(signer_name: str, request: x509.CertificateSigningRequest) -> str:
    """Return why this signer gives nobody such a name; empty if it does."""
    name, groups = names_of(request.subject)
    if signer_name == CLIENT:
        if MASTERS in groups:
            return f"use of {CLIENT} signer with {MASTERS} group is not allowed"
        return "" if name else "the subject of the request has no common name"
    if groups != (NODES,):
        return f"subject organization is not {NODES}"
    return (
        ""
        if name.startswith(NODE_PREFIX) and len(name) > len(NODE_PREFIX)
        else f"common name does not begin with {NODE_PREFIX}"
    )


def names_of(subject: x509.Name) -> tuple[str, tuple[str, ...]]:
    """Return the user name (CN) and groups (O) that a subject stands for; the name is empty unless there is exactly one."""
    names = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(each.value) for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return names[0] if len(names) == 1 else "", groups


def _find_fault(csr: CertificateSigningRequest, request: x509.CertificateSigningRequest) -> str:
    usages = set(csr.spec.usages)
    if "client auth" not in usages or usages - _CLIENT_USAGES:
        return f"usages must be client auth, and may be digital signature and key encipherment, not {', '.join(csr.spec.usages)}"
    if csr.spec.signer_name == KUBELET_CLIENT and "digital signature" not in usages:
        return "usages must have digital signature"
    if csr.spec.signer_name == KUBELET_CLIENT and any(
        isinstance(each.value, x509.SubjectAlternativeName) for each in request.extensions
    ):
        return "a node's certificate has no subject alternative names"
    return find_subject_fault(csr.spec.signer_name, request)


def _find_key_fault(key: object) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return "" if key.key_size >= _SHORTEST_RSA else f"the RSA key has fewer than {_SHORTEST_RSA} bits"
    return (
        "" if isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) else "the key is of no known kind"
    )


def ends_at(csr: CertificateSigningRequest) -> datetime | None:
    """Return when a request is deleted: a day after it was made, an hour after it was decided on."""
    created = csr.metadata.creation_timestamp
    decided = [each.last_update_time or each.last_transition_time or created for each in csr.status.conditions]
    moments = [each for each in decided if each is not None]
    if moments:
        return max(moments) + DECIDED_LIFE
    return created + PENDING_LIFE if created else None
