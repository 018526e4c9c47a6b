"""The CertificateSigningRequest kind: somebody asks for a client certificate, somebody approves, a controller signs.

The server fills in who asks (`app.api.auth.certificate_requests`). The spec never changes; the conditions Approved and Denied
change by the subresource `approval`, all else of the status by `status`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace as with_rules
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.kinds.auth.certificate_signing_request_schema import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestStatus,
)
from app.machinery.base import Column, Kind
from app.machinery.durations import age, human_duration, span
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, required

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "APPROVED",
    "CLIENT",
    "DENIED",
    "FAILED",
    "GROUP",
    "KIND",
    "KUBELET_CLIENT",
    "CertificateSigningRequest",
    "CertificateSigningRequestCondition",
    "as_approved_at",
    "condition_of",
    "decisions",
    "parse_request",
]

GROUP = "certificates.k8s.io"
CLIENT, KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet"
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
SHORTEST_SECONDS = 600
MOST_BYTES = 64 << 10  # of a request
_DECISIONS = (APPROVED, DENIED)
_SIGNER = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[A-Za-z0-9]([\w.:-]{0,250}[A-Za-z0-9])?"
)
_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip


def parse_request(pem: bytes) -> "x509.CertificateSigningRequest":
    """Parse a PKCS#10 request, PEM. ValueError if it is none, or is not signed by its own key."""
    # Most processes that know the kind never see a request, and do without the library.
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem or len(pem) > MOST_BYTES:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_pem_x509_csr(pem)
        is_valid = request.is_signature_valid
    except (UnsupportedAlgorithm, InvalidSignature, TypeError) as error:
        raise ValueError(str(error)) from error
    if not is_valid:
        raise ValueError("the signature of the request is not valid")
    return request


def condition_of(csr: CertificateSigningRequest, type_: str) -> CertificateSigningRequestCondition | None:
    """Return the condition of a type, if there is one."""
    return next((each for each in csr.status.conditions if each.type == type_), None)


def decisions(csr: CertificateSigningRequest) -> tuple[CertificateSigningRequestCondition, ...]:
    """Return what was approved or denied."""
    return tuple(each for each in csr.status.conditions if each.type in _DECISIONS)


def _others(csr: CertificateSigningRequest) -> tuple[CertificateSigningRequestCondition, ...]:
    return tuple(each for each in csr.status.conditions if each.type not in _DECISIONS)


def on_create(csr: CertificateSigningRequest, _: datetime) -> CertificateSigningRequest:
    return replace(csr, status=CertificateSigningRequestStatus())


def on_update(new: CertificateSigningRequest, old: CertificateSigningRequest) -> CertificateSigningRequest:
    return replace(new, spec=old.spec, status=old.status)


def on_approval(new: CertificateSigningRequest, old: CertificateSigningRequest) -> CertificateSigningRequest:
    """An approval touches no more than the conditions Approved and Denied."""
    return replace(new, spec=old.spec, status=replace(old.status, conditions=(*decisions(new), *_others(old))))


def on_status(new: CertificateSigningRequest, old: CertificateSigningRequest) -> CertificateSigningRequest:
    """A signer approves nothing."""
    return replace(new, spec=old.spec, status=replace(new.status, conditions=(*decisions(old), *_others(new))))


def validate(csr: CertificateSigningRequest) -> list[Cause]:
    return [*_faults_in_spec(csr), *_faults_in_conditions(csr.status.conditions)]


def _faults_in_spec(csr: CertificateSigningRequest) -> Iterator[Cause]:
    spec = csr.spec
    try:
        parse_request(spec.request)
    except ValueError as error:
        yield invalid("spec.request", "", str(error))
    if not spec.usages:
        yield required("spec.usages")
    for index, usage in enumerate(spec.usages):
        if usage not in _USAGES:
            yield not_supported(f"spec.usages[{index}]", usage, _USAGES)
        if usage in spec.usages[:index]:
            yield duplicate(f"spec.usages[{index}]", usage)
    if not spec.signer_name:
        yield required("spec.signerName")
    elif not _SIGNER.fullmatch(spec.signer_name):
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid("spec.signerName", spec.signer_name, why)
    if spec.expiration_seconds is not None and spec.expiration_seconds < SHORTEST_SECONDS:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", spec.expiration_seconds, why)


def _faults_in_conditions(conditions: Sequence[CertificateSigningRequestCondition]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, each in enumerate(conditions):
        field = f"status.conditions[{index}]"
        if not each.type:
            yield required(f"{field}.type")
        elif each.type in (*_DECISIONS, FAILED) and each.status != "True":
            yield not_supported(f"{field}.status", each.status, ("True",))
        if each.type in seen:
            yield duplicate(f"{field}.type", each.type)
        if each.type in _DECISIONS and seen & ({*_DECISIONS} - {each.type}):
            yield invalid(f"{field}.type", each.type, "Approved and Denied conditions are mutually exclusive")
        seen.add(each.type)


def validate_update(new: CertificateSigningRequest, old: CertificateSigningRequest) -> list[Cause]:
    """No decision is taken back, and no certificate is replaced."""
    kept = {each.type for each in new.status.conditions}
    causes = [
        forbidden("status.conditions", f'updates may not remove a condition of type "{each}"')
        for each in _types(old.status.conditions)
        if each in (*_DECISIONS, FAILED) and each not in kept
    ]
    if old.status.certificate and new.status.certificate != old.status.certificate:
        causes.append(forbidden("status.certificate", "updates may not modify existing certificate content"))
    return causes


def _types(conditions: Iterable[CertificateSigningRequestCondition]) -> list[str]:
    return [each.type for each in conditions]


def validate_status(new: CertificateSigningRequest, old: CertificateSigningRequest) -> list[Cause]:
    causes = [*_faults_in_conditions(new.status.conditions), *validate_update(new, old)]
    if new.status.certificate and new.status.certificate != old.status.certificate:
        from cryptography import x509

        try:
            x509.load_pem_x509_certificates(new.status.certificate)
        except ValueError as error:
            causes.append(invalid("status.certificate", "", str(error)))
    return causes


def row(csr: CertificateSigningRequest, now: datetime) -> list[Any]:
    meta, spec = csr.metadata, csr.spec
    seconds = spec.expiration_seconds
    asked = human_duration(span(seconds)) if seconds is not None else "<none>"
    return [meta.name, age(meta.creation_timestamp, now), spec.signer_name, spec.username, asked, condition_text(csr)]


def condition_text(csr: CertificateSigningRequest) -> str:
    """Return the state in kubectl's words: Pending, or `Approved,Issued`."""
    found = [each for each in (APPROVED, DENIED, FAILED) if condition_of(csr, each)] or ["Pending"]
    return ",".join([*found, *(["Issued"] if csr.status.certificate else [])])


KIND = Kind(
    type=CertificateSigningRequest,
    group=GROUP,
    version="v1",
    plural="certificatesigningrequests",
    short_names=("csr",),
    namespaced=False,
    has_status=True,
    on_create=on_create,
    on_update=on_update,
    on_status=on_status,
    validate=validate,
    validate_update=validate_update,
    validate_status=validate_status,
    columns=(
        Column(name="Name", format="name", description="Name of the request."),
        Column(name="Age", description="Time since the request was created."),
        Column(name="SignerName", description="Who is to sign."),
        Column(name="Requestor", description="Who asks."),
        Column(name="RequestedDuration", description="How long the certificate is to be good."),
        Column(name="Condition", description="What was decided."),
    ),
    row=row,
    fields={"spec.signerName": lambda csr: csr.spec.signer_name},
    example="""\
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata:
  name: ada
spec:
  request: "\\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIYk1JR0JBZ0VBTUI4eER6QU5CZ05WQkFvTUJuWnBjMmx2YmpF\\
    TU1Bb0dBMVVFQXd3RFlXUmhNRmt3RXdZSApLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FFTFkyWnU2TUtiVzl1L1JURm9oU3hS\\
    cWtINE8rSzd2MmZleWd1CmxuQ3VpbXRDb1lFL1JtUzN5KzdDUHAyVXRYSFp5SDU5OWRYQmVxS2RNVHZpVWJibWJxQUFNQW9HQ0Nx\\
    R1NNNDkKQkFNQ0Ewa0FNRVlDSVFENFlISE5hWGFRM0hjNnlXUmZqTlViR1IzWkdTM3Y4b1VHZW81TGV6UE8rd0loQU0reQp1SjR1\\
    NEZyNk9qSVJPdUVoTGdnN3QwNXVkQ1lSVmZuazVYa3RSaDlWCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=\\
    "
  signerName: kubernetes.io/kube-apiserver-client
  expirationSeconds: 86400
  usages: [client auth]
""",
)


def as_approved_at(now: datetime) -> Kind[CertificateSigningRequest]:
    """Return the kind as the subresource `approval` changes it: decisions that name no time get this one."""

    def decided(new: CertificateSigningRequest, old: CertificateSigningRequest) -> CertificateSigningRequest:
        made = on_approval(new, old)
        conditions = tuple(
            replace(
                each,
                last_update_time=each.last_update_time or now,
                last_transition_time=each.last_transition_time or now,
            )
            for each in made.status.conditions
        )
        return replace(made, status=replace(made.status, conditions=conditions))

    return with_rules(KIND, on_update=decided)
