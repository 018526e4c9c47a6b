"""Claim mappings: the user that the claims of a verified token stand for, by the rules of its provider. `oidc` calls it.

Rules and mappings may be expressions in CEL, which only an administrator writes, in a file of the API's machine. They see the
claims of tokens whose signature is verified, no larger than a header.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.api.auth.authentication_configuration import JWTAuthenticator, PrefixedClaimOrExpression
from app.api.auth.authenticator import AUTHENTICATED, User
from app.machinery.cel import CelError, Program, compile_expression

Claims = Mapping[str, Any]
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_RESERVED = "system:"
_BOOLEANS = ("BOOL", "DYN")


class OidcError(Exception):
    """A token that is not accepted; the text says why, for the log."""


class ClaimMapper:
    """The rules of one provider, compiled. ValueError names an expression that cannot be."""

    def __init__(self, provider: JWTAuthenticator) -> None:
        self._provider = provider
        self._programs = {field: _compile(field, *each) for field, each in provider.expressions.items()}

    def user_of(self, claims: Claims) -> User:
        """Raises OidcError for a rule that is broken, a missing claim, or a name that may not be used."""
        self._check_claims(claims)
        name = self._username(claims)
        if name.startswith(_RESERVED):
            raise OidcError(f"username {name} begins with {_RESERVED}, which is reserved")
        groups = [each for each in self._groups(claims) if not each.startswith(_RESERVED)]
        uid, extra = self._uid(claims), self._extra(claims)
        self._check_user({"username": name, "groups": groups, "uid": uid, "extra": extra})
        jti = claims.get("jti")
        return User(
            name=name,
            groups=tuple(dict.fromkeys((*groups, AUTHENTICATED))),
            uid=uid,
            extra={
                **{key: tuple(values) for key, values in extra.items()},
                **({CREDENTIAL_ID: (f"JTI={jti}",)} if isinstance(jti, str) and jti else {}),
            },
        )

    def _check_claims(self, claims: Claims) -> None:
        for number, rule in enumerate(self._provider.claim_validation_rules):
            if rule.claim:
                if claims.get(rule.claim) != rule.required_value:
                    raise OidcError(f"claim {rule.claim} is not {rule.required_value}")
            elif self._evaluate(f"claimValidationRules[{number}].expression", claims) is not True:
                raise OidcError(rule.message or f"expression is not true: {rule.expression}")

    def _check_user(self, user: Mapping[str, Any]) -> None:
        for number, rule in enumerate(self._provider.user_validation_rules):
            if self._evaluate(f"userValidationRules[{number}].expression", user, "user") is not True:
                raise OidcError(rule.message or f"expression is not true: {rule.expression}")

    def _username(self, claims: Claims) -> str:
        mapping = self._provider.claim_mappings.username
        name = self._mapped(mapping, "claimMappings.username", claims)
        if not isinstance(name, str) or not name or "\0" in name:
            raise OidcError(f"{_source(mapping)} is missing or no string")
        if mapping.claim == "email" and claims.get("email_verified", True) is not True:
            raise OidcError("the e-mail address is not verified")
        return (mapping.prefix or "") + name

    def _groups(self, claims: Claims) -> list[str]:
        """Names of the cluster's own groups, `system:...`, are left out by the caller: no provider may give them."""
        mapping = self._provider.claim_mappings.groups
        found = self._mapped(mapping, "claimMappings.groups", claims)
        return [(mapping.prefix or "") + each for each in _strings(found, _source(mapping))]

    def _uid(self, claims: Claims) -> str:
        mapping = self._provider.claim_mappings.uid
        if not mapping.claim and not mapping.expression:
            return ""
        found = claims.get(mapping.claim) if mapping.claim else self._evaluate("claimMappings.uid.expression", claims)
        if not isinstance(found, str) or "\0" in found:
            raise OidcError(f"{mapping.claim or 'the uid'} is missing or no string")
        return found

    def _extra(self, claims: Claims) -> dict[str, list[str]]:
        found = {}
        for number, each in enumerate(self._provider.claim_mappings.extra):
            value = self._evaluate(f"claimMappings.extra[{number}].valueExpression", claims)
            if values := _strings(value, f"extra {each.key}"):
                found[each.key] = values
        return found

    def _mapped(self, mapping: PrefixedClaimOrExpression, path: str, claims: Claims) -> Any:
        if mapping.expression:
            return self._evaluate(f"{path}.expression", claims)
        return claims.get(mapping.claim) if mapping.claim else None

    def _evaluate(self, field: str, value: Mapping[str, Any], variable: str = "claims") -> Any:
        try:
            return self._programs[field].evaluate({variable: value})
        except Exception as error:  # whatever the claims make the library raise, the token is refused
            raise OidcError(f"{field} cannot be evaluated: {str(error) or type(error).__name__}") from None


def _source(mapping: PrefixedClaimOrExpression) -> str:
    return f"claim {mapping.claim}" if mapping.claim else "what the expression gives"


def _strings(found: Any, what: str) -> list[str]:
    """A list of texts, one text, or nothing."""
    names: Sequence[Any] = [found] if isinstance(found, str) and found else found or []
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) and "\0" not in each for each in names):
        raise OidcError(f"{what} is no list of strings")
    return [each for each in names if each]


def _compile(field: str, expression: str, variable: str) -> Program:
    try:
        program = compile_expression(expression, frozenset({variable}))
    except CelError as error:
        raise ValueError(f"{field}: {str(error).splitlines()[0]}") from None
    if "ValidationRules" in field and program.type not in _BOOLEANS:
        raise ValueError(f"{field}: must evaluate to bool")
    return program
