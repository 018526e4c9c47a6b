"""Ends that the API forgets because its database goes back in time are reported again."""

from app.agent.pods.last_reports import MOST, Ends
from app.agent.pods.status_reports import Report
from app.kinds.pod.pod import Pod, PodStatus
from tests.registry.examples import a_pod, named


def report(uid: str, phase: str = "Succeeded") -> Report:
    return Report(uid, "default", uid, PodStatus(phase=phase))


def pod(uid: str, phase: str = "Running") -> Pod:
    made = named(a_pod(uid), uid=uid)
    return type(made)(metadata=made.metadata, spec=made.spec, status=PodStatus(phase=phase))


def test_the_end_of_a_pod_that_goes_on_for_the_api_is_reported_again() -> None:
    ends = Ends()
    ends.keep(report("p"))

    assert ends.again(pod("p")) == report("p")


def test_only_ends_are_kept_and_only_for_pods_that_go_on() -> None:
    ends = Ends()
    ends.keep(report("runs", "Running"))
    ends.keep(report("ended"))

    assert ends.again(pod("runs")) is None
    assert ends.again(pod("ended", "Succeeded")) is None
    assert ends.again(pod("another")) is None


def test_the_newest_ends_are_kept() -> None:
    ends = Ends()
    for number in range(MOST + 1):
        ends.keep(report(str(number)))

    assert ends.again(pod("0")) is None
    assert ends.again(pod(str(MOST))) is not None
