"""The events of a Job, worded as Kubernetes' Job controller words them."""

from collections.abc import Sequence

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.plan import Emit

SINGLE_EVENTS = 10  # of one sort in a plan; a Job of a thousand pods must not write a thousand events


def created(job: Job, pods: Sequence[Pod]) -> tuple[Emit, ...]:
    return each(job, "Normal", "SuccessfulCreate", [f"Created pod: {pod.metadata.name}" for pod in pods])


def deleted(job: Job, pods: Sequence[Pod]) -> tuple[Emit, ...]:
    return each(job, "Normal", "SuccessfulDelete", [f"Deleted pod: {pod.metadata.name}" for pod in pods])


def each(job: Job, type_: str, reason: str, messages: Sequence[str]) -> tuple[Emit, ...]:
    """One event a message up to a number, and one more that stands for all the others."""
    single, others = messages[:SINGLE_EVENTS], messages[SINGLE_EVENTS:]
    emits = [Emit(type_, reason, message, job) for message in single]
    if others:
        emits.append(Emit(type_, reason, f"(combined from similar events): {others[-1]}", job, len(others)))
    return tuple(emits)


def refused(job: Job, message: str) -> Emit:
    return Emit("Warning", "FailedCreate", f"Error creating: {message}", job)


def suspended(job: Job) -> Emit:
    return Emit("Normal", "Suspended", "Job suspended", job)


def resumed(job: Job) -> Emit:
    return Emit("Normal", "Resumed", "Job resumed", job)


def finished(job: Job, terminal: Condition) -> Emit:
    if terminal.type == "Complete":
        return Emit("Normal", "Completed", "Job completed", job)
    return Emit("Warning", terminal.reason, terminal.message, job)


def too_many_succeeded(job: Job) -> Emit:
    return Emit(
        "Warning",
        "TooManySucceededPods",
        "Too many succeeded pods running after completion count reached",
        job,
    )


def unknown_completion_mode(job: Job) -> Emit:
    return Emit("Warning", "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown", job)
