"""Feature gates: optional behaviour, under Kubernetes' own names.

The command line parses `--feature-gates` with `parse`; the registry and the controllers receive the result.
"""

from collections.abc import Iterator

GENERIC_WORKLOAD = "GenericWorkload"  # the API of Workloads and PodGroups, and pods that are scheduled by them
TOPOLOGY_AWARE = "TopologyAwareWorkloadScheduling"  # `schedulingConstraints` of groups
WORKLOAD_WITH_JOB = "WorkloadWithJob"  # the Job controller makes a Workload and a PodGroup for each Job

KNOWN: dict[str, bool] = {GENERIC_WORKLOAD: False, TOPOLOGY_AWARE: False, WORKLOAD_WITH_JOB: False}
"""Every gate, and whether it is on by default."""

_NEEDS = {TOPOLOGY_AWARE: (GENERIC_WORKLOAD,), WORKLOAD_WITH_JOB: (GENERIC_WORKLOAD,)}

Features = frozenset[str]
"""The gates that are on."""

DEFAULTS: Features = frozenset(name for name, on in KNOWN.items() if on)

_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def parse(text: str) -> Features:
    """Parse `A=true,B=false`, as Kubernetes' components do. ValueError for what is malformed, unknown or lacks another gate."""
    given = dict(map(_parse_gate, filter(None, (part.strip() for part in text.split(",")))))
    features = frozenset(name for name, on in (KNOWN | given).items() if on)
    for name in sorted(features):
        if missing := [each for each in _NEEDS.get(name, ()) if each not in features]:
            raise ValueError(f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]")
    return features


def _parse_gate(text: str) -> tuple[str, bool]:
    name, equals, word = (part.strip() for part in text.partition("="))
    if not equals:
        raise ValueError(f"missing bool value for {name}")
    if name not in KNOWN:
        raise ValueError(f"unrecognized feature gate: {name} (known are: {', '.join(_format_defaults())})")
    if word.lower() not in _BOOLEANS:
        raise ValueError(f"invalid value of {name}={word}, it must be true or false")
    return name, _BOOLEANS[word.lower()]


def _format_defaults() -> Iterator[str]:
    """Return every gate with its default."""
    return (f"{name}={str(on).lower()}" for name, on in sorted(KNOWN.items()))
