"""Namespace policy: which Pod Security level and version the labels of a namespace ask for, in each mode. Pure.

`PodSecurityConfiguration` is the one reading of "the level of a namespace": admission enforces by it, and whoever
else depends on the level of a namespace asks it, too. The rules are those of k8s.io/pod-security-admission: a label that
cannot be read means restricted where it is enforced, and privileged where it only warns or audits.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

from app.machinery.errors import Cause, invalid

PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")  # least strict first
LATEST = "latest"
PREFIX = "pod-security.kubernetes.io/"
MODES = ("enforce", "audit", "warn")
LABELS = frozenset(f"{PREFIX}{mode}{suffix}" for mode in MODES for suffix in ("", "-version"))
Level = Literal["privileged", "baseline", "restricted"]
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,8})")


class LevelVersion(NamedTuple):
    """A level, and the release of Kubernetes as of which its controls are meant: `latest`, or `v1.30`."""

    level: str = PRIVILEGED
    version: str = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"


class NamespacePolicy(NamedTuple):
    """What is asked of the pods of a namespace, by mode."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def is_privileged(self) -> bool:
        """Return whether every pod passes in every mode."""
        return all(each.level == PRIVILEGED for each in self)


ALL_PRIVILEGED = NamespacePolicy()
EXEMPT = NamespacePolicy()  # the same; a review tells it apart by its identity, for the audit log


class PodSecurityConfiguration(NamedTuple):
    """The policy of namespaces without labels, and the namespaces that none applies to.

    is_set: somebody has chosen the default. If nobody has, nodes whose containers come from an engine give no more than baseline.
    """

    default: NamespacePolicy = ALL_PRIVILEGED
    exempt: frozenset[str] = frozenset({"kube-system"})
    is_set: bool = False

    def policy_of(self, namespace: str, labels: Mapping[str, str]) -> NamespacePolicy:
        """Return what is asked of the pods of a namespace."""
        return EXEMPT if namespace in self.exempt else read_labels(labels, self.default).policy

    def enforced_level(self, namespace: str, labels: Mapping[str, str]) -> Level:
        """Return the level that a namespace enforces: agents run pods of others than privileged as users of their own."""
        return cast("Level", self.policy_of(namespace, labels).enforce.level)

    def is_enforced_by_choice(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a label, an exemption or a setting says what a namespace enforces."""
        return self.is_set or namespace in self.exempt or f"{PREFIX}enforce" in labels


USUAL_CONFIGURATION = PodSecurityConfiguration()


class ReadLabels(NamedTuple):
    """A policy, and what is wrong with the labels that it was read from."""

    policy: NamespacePolicy
    causes: list[Cause]


def default_policy(level: str) -> NamespacePolicy:
    """Return the policy of namespaces without labels, for one level in every mode."""
    return ALL_PRIVILEGED if level == PRIVILEGED else NamespacePolicy(*(LevelVersion(level),) * 3)


def read_labels(labels: Mapping[str, str], default: NamespacePolicy = ALL_PRIVILEGED) -> ReadLabels:
    """Read the labels of a namespace. What is stricter when enforced is warned of, too, unless a label says otherwise."""
    if LABELS.isdisjoint(labels):
        return ReadLabels(default, [])
    causes: list[Cause] = []
    enforce, audit, warn = (_read_mode(mode, labels, getattr(default, mode), causes) for mode in MODES)
    says_enforce, says_warn = labels.get(f"{PREFIX}enforce") in LEVELS, f"{PREFIX}warn" in labels
    if says_enforce and not says_warn and is_stricter(enforce.level, warn.level):
        version = warn.version if f"{PREFIX}warn-version" in labels else enforce.version
        warn = LevelVersion(enforce.level, version)
    return ReadLabels(NamespacePolicy(enforce, audit, warn), causes)


def is_stricter(level: str, other: str) -> bool:
    """Return whether a level forbids more than another."""
    return LEVELS.index(level) > LEVELS.index(other)


def _read_mode(mode: str, labels: Mapping[str, str], default: LevelVersion, causes: list[Cause]) -> LevelVersion:
    level, version = default
    label = f"{PREFIX}{mode}"
    if label in labels:
        level = labels[label]
        if level not in LEVELS:
            causes.append(invalid(f"metadata.labels[{label}]", level, f"must be one of {', '.join(LEVELS)}"))
            level = RESTRICTED if mode == "enforce" else PRIVILEGED
    label = f"{label}-version"
    if label in labels:
        version = labels[label]
        if version != LATEST and not _VERSION.fullmatch(version):
            causes.append(invalid(f"metadata.labels[{label}]", version, 'must be "latest" or "v1.x"'))
            version = LATEST
    return LevelVersion(level, version)
