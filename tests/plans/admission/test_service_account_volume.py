"""Who is given a token of its service account, and where."""

import pytest

from app.kinds.core.serviceaccount import ServiceAccount
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, PodSpec
from app.kinds.pod.volume import VolumeMount
from app.machinery.base import ObjectMeta
from app.plans.admission.pod_admission import Rules, apply_defaults, has_defaults
from app.plans.admission.service_account_volume import PATH

OWN = VolumeMount(name="own", mount_path=PATH)


def a_pod(asked: bool | None = None, *mounts: VolumeMount) -> Pod:
    containers = (Container(name="a", volume_mounts=mounts), Container(name="b"))
    spec = PodSpec(automount_service_account_token=asked, containers=containers, init_containers=(Container(name="i"),))
    return Pod(metadata=ObjectMeta(generate_name="pi-"), spec=spec)


def rules(asked: bool | None) -> Rules:
    return Rules(accounts={"default": ServiceAccount(automount_service_account_token=asked)})


@pytest.mark.parametrize(
    ("pod", "account", "given"),
    [
        pytest.param(None, None, False, id="nobody who does not ask"),
        pytest.param(True, None, True, id="a pod that asks"),
        pytest.param(None, True, True, id="a pod whose account asks"),
        pytest.param(False, True, False, id="no pod that says no"),
        pytest.param(True, False, True, id="a pod that asks, whatever its account says"),
    ],
)
def test_a_token_is_for(pod: bool | None, account: bool | None, given: bool) -> None:
    before = a_pod(pod)
    after = apply_defaults(before, rules(account))

    assert bool(after.spec.volumes) == given
    assert has_defaults(before, rules(account)) == (not given)


def test_every_container_has_it_where_it_looks_but_those_with_something_of_their_own() -> None:
    spec = apply_defaults(a_pod(True, OWN), rules(None)).spec
    (volume,) = spec.volumes

    assert volume.name.startswith("kube-api-access-")
    assert len(volume.name) == len("kube-api-access-12345")
    assert spec.containers[0].volume_mounts == (OWN,)
    for container in (spec.containers[1], *spec.init_containers):
        assert container.volume_mounts == (VolumeMount(name=volume.name, read_only=True, mount_path=PATH),)


def test_it_is_given_once() -> None:
    once = apply_defaults(a_pod(True), rules(None))

    assert apply_defaults(once, rules(None)) == once
