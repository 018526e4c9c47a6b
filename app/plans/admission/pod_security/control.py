"""Control: one row of the Pod Security Standards' table, with its versions; and how violations are worded.

Used by `baseline`, `restricted` and `evaluation`. Words and order are those of k8s.io/pod-security-admission, as clients and
people match on them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from app.kinds.pod.container import Container, EphemeralContainer
from app.kinds.pod.pod_schema import PodSpec
from app.kinds.pod.security import PodSecurityContext, SecurityContext

Annotations = Mapping[str, str]
AnyContainer = Container | EphemeralContainer


class Violation(NamedTuple):
    """What is forbidden, in short, and where the pod has it."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


Check = Callable[[Annotations, PodSpec], Violation | None]


class Control(NamedTuple):
    """A control. `versions`: from which minor release of Kubernetes which check holds. `replaces`: of baseline, in restricted."""

    id: str
    versions: tuple[tuple[int, Check], ...]
    replaces: str = ""


def containers_of(spec: PodSpec) -> Iterator[AnyContainer]:
    yield from spec.init_containers
    yield from spec.containers
    yield from spec.ephemeral_containers


_NO_CONTEXT = SecurityContext()
_NO_POD_CONTEXT = PodSecurityContext()


def context_of(container: AnyContainer) -> SecurityContext:
    return container.security_context or _NO_CONTEXT


def pod_context_of(spec: PodSpec) -> PodSecurityContext:
    return spec.security_context or _NO_POD_CONTEXT


def names_where(spec: PodSpec, is_meant: Callable[[AnyContainer], bool]) -> list[str]:
    """Return the names of the containers of every sort that are meant."""
    return [each.name for each in containers_of(spec) if is_meant(each)]


def is_windows(spec: PodSpec) -> bool:
    return spec.os is not None and spec.os.name == "windows"


def has_user_namespace(spec: PodSpec) -> bool:
    return spec.host_users is False


# --- wording


def plural(word: str, items: Sequence[Any]) -> str:
    return word if len(items) == 1 else f"{word}s"


def quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{each}"' for each in items)


def name_containers(names: Sequence[str]) -> str:
    """Return `container "a"`, or `containers "a", "b"`."""
    return f"{plural('container', names)} {quoted(names)}"


def name_setters(*, pod: bool, names: Sequence[str]) -> str:
    """Return who sets a field: `pod and container "a"`; empty if nobody does."""
    return " and ".join((*(("pod",) if pod else ()), *((name_containers(names),) if names else ())))
