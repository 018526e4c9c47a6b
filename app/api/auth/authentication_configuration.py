"""AuthenticationConfiguration: which identity providers the API trusts, in the form of kube-apiserver's file of that kind. Pure.

`app.api.auth.identity_providers` reads the file; `from_flags` makes the same of the settings `--oidc-*`, a shorthand for one
provider. What a token's claims mean is in `claim_mappings`. Source: k8s.io/apiserver/pkg/apis/apiserver (types and validation)
of 1.34, whose API group is apiserver.config.k8s.io.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from app.machinery.base import ObjectMeta, Struct, at
from app.machinery.decoding.decode import decode
from app.machinery.errors import ApiError, Cause, duplicate, forbidden, invalid, one_of, required, too_many
from app.machinery.name_validation import dns_subdomain

KIND = "AuthenticationConfiguration"
VERSIONS = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1")
MATCH_ANY = "MatchAny"
MOST = 64  # providers, as in Kubernetes
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")


class Issuer(Struct):
    """Where tokens come from, and whom they must be meant for. `certificate_authority`: PEM; none: the machine's."""

    url: Annotated[str, at(1)] = ""
    discovery_url: Annotated[str, at(2)] = msgspec.field(default="", name="discoveryURL")
    certificate_authority: Annotated[str, at(3)] = ""
    audiences: Annotated[tuple[str, ...], at(4)] = ()
    audience_match_policy: Annotated[str, at(5)] = ""
    egress_selector_type: Annotated[str, at(6)] = ""


class ClaimValidationRule(Struct):
    """A claim with a value that is required, or an expression over `claims` that must be true."""

    claim: Annotated[str, at(1)] = ""
    required_value: Annotated[str, at(2)] = ""
    expression: Annotated[str, at(3)] = ""
    message: Annotated[str, at(4)] = ""


class PrefixedClaimOrExpression(Struct):
    """A claim with a prefix, which may be "", or an expression over `claims`."""

    claim: Annotated[str, at(1)] = ""
    prefix: Annotated[str | None, at(2)] = None
    expression: Annotated[str, at(3)] = ""


class ClaimOrExpression(Struct):
    """One of them."""

    claim: Annotated[str, at(1)] = ""
    expression: Annotated[str, at(2)] = ""


class ExtraMapping(Struct):
    """An attribute of users beside name, groups and UID."""

    key: Annotated[str, at(1)] = ""
    value_expression: Annotated[str, at(2)] = ""


class ClaimMappings(Struct):
    """What of a token becomes the user."""

    username: Annotated[PrefixedClaimOrExpression, at(1)] = PrefixedClaimOrExpression()
    groups: Annotated[PrefixedClaimOrExpression, at(2)] = PrefixedClaimOrExpression()
    uid: Annotated[ClaimOrExpression, at(3)] = ClaimOrExpression()
    extra: Annotated[tuple[ExtraMapping, ...], at(4)] = ()


class UserValidationRule(Struct):
    """An expression over `user` that must be true."""

    expression: Annotated[str, at(1)] = ""
    message: Annotated[str, at(2)] = ""


class JWTAuthenticator(Struct):
    """One provider."""

    issuer: Annotated[Issuer, at(1)] = Issuer()
    claim_validation_rules: Annotated[tuple[ClaimValidationRule, ...], at(2)] = ()
    claim_mappings: Annotated[ClaimMappings, at(3)] = ClaimMappings()
    user_validation_rules: Annotated[tuple[UserValidationRule, ...], at(4)] = ()

    @property
    def expressions(self) -> dict[str, tuple[str, str]]:
        """Each expression by its field, with the variable that it knows."""
        mappings = self.claim_mappings
        found = {
            **{
                f"claimValidationRules[{n}].expression": each.expression
                for n, each in enumerate(self.claim_validation_rules)
            },
            **{
                f"claimMappings.{name}.expression": getattr(mappings, name).expression
                for name in ("username", "groups", "uid")
            },
            **{
                f"claimMappings.extra[{n}].valueExpression": each.value_expression
                for n, each in enumerate(mappings.extra)
            },
        }
        users = {
            f"userValidationRules[{n}].expression": each.expression for n, each in enumerate(self.user_validation_rules)
        }
        return {
            **{field: (text, "claims") for field, text in found.items() if text},
            **{field: (text, "user") for field, text in users.items() if text},
        }


class AnonymousAuthConfig(Struct):
    """Requests without credentials are refused here: it may only say so."""

    enabled: Annotated[bool, at(1)] = False


class AuthenticationConfiguration(Struct):
    """The whole file."""

    api_version: Annotated[str, at(0)] = ""
    kind: Annotated[str, at(0)] = ""
    metadata: Annotated[ObjectMeta, at(1)] = ObjectMeta()
    jwt: Annotated[tuple[JWTAuthenticator, ...], at(2)] = ()
    anonymous: Annotated[AnonymousAuthConfig | None, at(3)] = None


def from_flags(  # noqa: PLR0913 - one for each flag of kube-apiserver
    *,
    issuer_url: str,
    client_id: str,
    username_claim: str = "sub",
    username_prefix: str = "",
    groups_claim: str = "",
    groups_prefix: str = "",
    required_claims: Mapping[str, str] | None = None,
    certificate_authority: str = "",
) -> JWTAuthenticator:
    """Return what the flags `--oidc-*` mean: `-` is no prefix; without one, names that are no e-mail get the issuer's URL."""
    if not username_prefix and username_claim != "email":
        username_prefix = f"{issuer_url}#"
    prefix = "" if username_prefix == "-" else username_prefix
    rules = (ClaimValidationRule(claim=name, required_value=value) for name, value in (required_claims or {}).items())
    groups = (
        PrefixedClaimOrExpression(claim=groups_claim, prefix=groups_prefix)
        if groups_claim
        else PrefixedClaimOrExpression()
    )
    return JWTAuthenticator(
        issuer=Issuer(url=issuer_url, audiences=(client_id,), certificate_authority=certificate_authority),
        claim_validation_rules=tuple(rules),
        claim_mappings=ClaimMappings(
            username=PrefixedClaimOrExpression(claim=username_claim, prefix=prefix), groups=groups
        ),
    )


def read_configuration(text: bytes) -> tuple[JWTAuthenticator, ...]:
    """Read the file, YAML or JSON. ValueError with one line that says what to change. Expressions are not compiled yet."""
    try:
        found = decode(text, AuthenticationConfiguration, content_type="yaml", validation="Strict").object
    except ApiError as error:
        raise ValueError(error.message) from None
    if faults := list(_faults(found)):
        raise ValueError("; ".join(f"{fault.field}: {fault.message}" for fault in faults))
    return found.jwt


def _faults(found: AuthenticationConfiguration) -> Iterator[Cause]:
    yield from one_of("apiVersion", found.api_version, VERSIONS)
    yield from one_of("kind", found.kind, (KIND,))
    if found.anonymous is not None and found.anonymous.enabled:
        yield forbidden("anonymous.enabled", "requests without credentials are never accepted here")
    if len(found.jwt) > MOST:
        yield too_many("jwt", len(found.jwt), MOST)
    urls: set[str] = set()
    for number, each in enumerate(found.jwt):
        yield from _faults_in_issuer(each.issuer, f"jwt[{number}].issuer")
        if each.issuer.url in urls:
            yield duplicate(f"jwt[{number}].issuer.url", each.issuer.url)
        urls.add(each.issuer.url)
        for cause in (*_faults_in_rules(each), *_faults_in_mappings(each.claim_mappings), *_faults_in_email(each)):
            yield cause._replace(field=f"jwt[{number}].{cause.field}")


def _faults_in_issuer(issuer: Issuer, path: str) -> Iterator[Cause]:
    yield from _faults_in_url(issuer.url, f"{path}.url", needed=True)
    yield from _faults_in_url(issuer.discovery_url, f"{path}.discoveryURL", needed=False)
    if issuer.discovery_url and issuer.discovery_url == issuer.url:
        yield invalid(f"{path}.discoveryURL", issuer.discovery_url, "discoveryURL must be different from URL")
    if issuer.egress_selector_type:
        yield forbidden(f"{path}.egressSelectorType", "there are no egress selectors here")
    if not issuer.audiences:
        yield required(f"{path}.audiences", "at least one jwt audience is required")
    for number, each in enumerate(issuer.audiences):
        if not each:
            yield required(f"{path}.audiences[{number}]", "audience can't be empty")
        if each in issuer.audiences[:number]:
            yield duplicate(f"{path}.audiences[{number}]", each)
    policy, path = issuer.audience_match_policy, f"{path}.audienceMatchPolicy"
    if len(issuer.audiences) > 1 and policy != MATCH_ANY:
        yield invalid(path, policy, "audienceMatchPolicy must be set to MatchAny when multiple audiences are specified")
    elif policy not in ("", MATCH_ANY):
        yield invalid(path, policy, "audienceMatchPolicy must be empty or MatchAny for single audience")


def _faults_in_url(url: str, path: str, *, needed: bool) -> Iterator[Cause]:
    if not url:
        if needed:
            yield required(path, "URL is required")
        return
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        yield invalid(path, url, "is no URL")
    elif parts.scheme != "https":
        yield invalid(path, url, "URL scheme must be https")
    elif parts.username or parts.query or parts.fragment:
        yield invalid(path, url, "URL must not contain a username, a password, a query or a fragment")


def _faults_in_rules(each: JWTAuthenticator) -> Iterator[Cause]:
    for number, rule in enumerate(each.claim_validation_rules):
        path = f"claimValidationRules[{number}]"
        if bool(rule.claim) == bool(rule.expression):
            yield required(path, "exactly one of claim and expression is required")
        if rule.claim and rule.message:
            yield invalid(f"{path}.message", rule.message, "message can't be set when claim is set")
        if rule.expression and rule.required_value:
            yield invalid(
                f"{path}.requiredValue", rule.required_value, "requiredValue can't be set when expression is set"
            )
    for number, user_rule in enumerate(each.user_validation_rules):
        if not user_rule.expression:
            yield required(f"userValidationRules[{number}].expression")


def _faults_in_mappings(mappings: ClaimMappings) -> Iterator[Cause]:
    yield from _faults_in_mapping(mappings.username, "claimMappings.username")
    if not mappings.username.claim and not mappings.username.expression:
        yield required("claimMappings.username", "claim or expression is required")
    yield from _faults_in_mapping(mappings.groups, "claimMappings.groups")
    if mappings.uid.claim and mappings.uid.expression:
        yield invalid("claimMappings.uid", "", "claim and expression can't both be set")
    yield from _faults_in_extra(mappings.extra)


def _faults_in_mapping(mapping: PrefixedClaimOrExpression, path: str) -> Iterator[Cause]:
    if mapping.claim and mapping.expression:
        yield invalid(path, "", "claim and expression can't both be set")
    if mapping.claim and mapping.prefix is None:
        yield required(f"{path}.prefix", 'prefix is required when claim is set. It can be set to an empty string ""')
    if not mapping.claim and mapping.prefix is not None:
        yield invalid(f"{path}.prefix", mapping.prefix, "prefix can only be set when claim is set")


def _faults_in_extra(extra: Sequence[ExtraMapping]) -> Iterator[Cause]:
    keys: set[str] = set()
    for number, each in enumerate(extra):
        path = f"claimMappings.extra[{number}]"
        domain, slash, rest = each.key.partition("/")
        if not each.key:
            yield required(f"{path}.key")
        elif not slash or not rest or dns_subdomain(domain) or each.key != each.key.lower():
            yield invalid(
                f"{path}.key", each.key, "must be a lowercase path with a domain before it, such as example.com/tenant"
            )
        elif any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS):
            yield invalid(
                f"{path}.key", each.key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
            )
        if each.key in keys:
            yield duplicate(f"{path}.key", each.key)
        keys.add(each.key)
        if not each.value_expression:
            yield required(f"{path}.valueExpression")


def _faults_in_email(each: JWTAuthenticator) -> Iterator[Cause]:
    """Who takes names from `claims.email` by an expression has to look whether it was verified."""
    name = each.claim_mappings.username.expression
    others = (
        *(rule.expression for rule in each.claim_validation_rules),
        *(one.value_expression for one in each.claim_mappings.extra),
    )
    if "claims.email" in name.replace("claims.email_verified", "") and not any(
        "email_verified" in text for text in (name, *others)
    ):
        fields = "claimMappings.username.expression, claimMappings.extra[*].valueExpression or claimValidationRules[*].expression"
        why = f"claims.email_verified must be used in {fields} when claims.email is used in claimMappings.username.expression"
        yield invalid("claimMappings.username.expression", name, why)
