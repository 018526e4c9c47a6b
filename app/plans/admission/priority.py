"""Priority of a new pod, and whether a PriorityClass may become the default. Part of `pod_admission`."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.kinds.scheduling.priorityclass import KIND, PriorityClass
from app.machinery.errors import ApiError, refused

Classes = Mapping[str, PriorityClass]
USUAL_POLICY = "PreemptLowerPriority"


def default_of(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """The class of pods that name none. Should several claim to be it, the lowest is."""
    marked = (each for each in classes if each.global_default)
    return min(marked, key=lambda each: (each.value or 0, each.metadata.name), default=None)


def with_priority(pod: Pod, classes: Classes, name: str) -> Pod:
    """The pod with the priority and the preemption policy of its class. `name` is what a refusal calls it."""
    wanted = pod.spec.priority_class_name
    found = classes.get(wanted) if wanted else default_of(classes.values())
    if wanted and found is None:
        raise refused("pods", name, f"no PriorityClass with name {wanted} was found")
    value, policy = (found.value or 0, found.preemption_policy) if found else (0, USUAL_POLICY)
    if pod.spec.priority not in (None, value):
        raise refused("pods", name, _differs("integer value of priority", pod.spec.priority, value))
    if policy and pod.spec.preemption_policy not in ("", policy):
        raise refused("pods", name, _differs("string value of PreemptionPolicy", pod.spec.preemption_policy, policy))
    name = found.metadata.name if found else ""
    policy = policy or pod.spec.preemption_policy
    return replace(pod, spec=replace(pod.spec, priority_class_name=name, priority=value, preemption_policy=policy))


def _differs(what: str, given: object, computed: object) -> str:
    return (
        f"the {what} ({given}) must not be provided in pod spec; "
        f"priority admission controller computed {computed} from the given PriorityClass name"
    )


def second_default(made: PriorityClass, classes: Classes) -> ApiError | None:
    """The refusal of a class that would be the second default one."""
    known = default_of(classes.values())
    name = made.metadata.name
    if not made.global_default or known is None or known.metadata.name == name:
        return None
    why = f"PriorityClass {known.metadata.name} is already marked as default. Only one default can exist"
    return refused(KIND.resource, name, why)
