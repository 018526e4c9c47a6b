"""CertificateSigningRequests: fills in who asks, and checks who may approve and sign, as Kubernetes' admission plugins do.

`collection` and `apply` call `with_requester` for a new object; `rbac_escalation` takes `write_check` for each write. The right
to approve or sign is the verb on the resource `signers`, whose name is the signer's, or its domain with `/*`.
"""

from typing import Any, cast

from msgspec.structs import replace

from app.api.auth.authenticator import Action, User, may
from app.kinds.auth.certificate_signing_request import (
    CLIENT,
    GROUP,
    KIND,
    CertificateSigningRequest,
    decisions,
    parse_request,
)
from app.machinery.base import Object
from app.machinery.errors import forbidden_error
from app.plans.admission.rbac import Access
from app.plans.certificate_signing import find_subject_fault


def with_requester(obj: Any, user: User) -> Any:
    """Return a new object with its user, if it is a request for a certificate."""
    if not isinstance(obj, CertificateSigningRequest):
        return obj
    spec = replace(obj.spec, username=user.name, uid=user.uid, groups=user.groups, extra=dict(user.extra))
    return replace(obj, spec=spec)


class WriteCheck:
    """Raises 403 for a new request that no signer may sign, an approval without `approve`, a certificate without `sign`."""

    def __init__(self, user: User, rights: Access) -> None:
        self._user, self._rights = user, rights

    def __call__(self, new: Object, old: Object | None) -> None:
        changed, before = cast("CertificateSigningRequest", new), cast("CertificateSigningRequest | None", old)
        if before is None:
            _check_subject(changed)
            return
        if decisions(changed) != decisions(before):
            self._require("approve", before)
        elif changed.status != before.status:
            self._require("sign", before)

    def _require(self, verb: str, csr: CertificateSigningRequest) -> None:
        signer = csr.spec.signer_name
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            action = Action(verb, GROUP, "signers", name=name)
            if may(self._user, action) or self._rights.allowing(action) is not None:
                return
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise forbidden_error(KIND.resource, csr.metadata.name, why)


def _check_subject(csr: CertificateSigningRequest) -> None:
    if csr.spec.signer_name != CLIENT:
        return
    try:
        why = find_subject_fault(CLIENT, parse_request(csr.spec.request))
    except ValueError:
        return  # validation says it better
    if "group" in why:
        raise forbidden_error(KIND.resource, csr.metadata.name, why)
