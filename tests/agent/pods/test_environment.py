"""A container's environment and command, resolved."""

import pytest

from app.agent.pods.environment import ContainerConfigError, Lookup, expand, expand_all, resolve
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.secret import Secret
from app.kinds.pod.container import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ResourceRequirements,
    SecretEnvSource,
    SecretKeySelector,
)
from app.kinds.pod.pod import Pod, PodSpec, PodStatus
from app.kinds.pod.volume import ObjectFieldSelector, ResourceFieldSelector
from app.machinery.base import ObjectMeta

POD = Pod(
    metadata=ObjectMeta(
        name="pi-0",
        namespace="default",
        uid="u-1",
        labels={"app": "pi"},
        annotations={"batch.kubernetes.io/job-completion-index": "7"},
    ),
    spec=PodSpec(node_name="n1", service_account_name="runner"),
    status=PodStatus(host_ip="10.0.0.1", pod_ip="10.0.0.2"),
)


async def config_map(namespace: str, name: str) -> ConfigMap | None:
    assert namespace == "default"
    return ConfigMap(data={"level": "debug", "size": "3"}) if name == "settings" else None


async def secret(namespace: str, name: str) -> Secret | None:
    assert namespace == "default"
    return Secret(data={"token": b"hush"}) if name == "keys" else None


LOOKUP = Lookup(config_map, secret, {"cpu": "4", "memory": "8Gi"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(A)-$(B)", "1-2", id="known names are replaced"),
        pytest.param("$(C)", "$(C)", id="unknown ones are left alone"),
        pytest.param("$$(A)", "$(A)", id="a doubled dollar escapes"),
        pytest.param("$A ${A} $", "$A ${A} $", id="the shell's forms mean nothing"),
        pytest.param("$(A", "$(A", id="an open bracket is only text"),
        pytest.param("$$$(A)", "$1", id="an escape may precede a name"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_a_command_sees_the_environment() -> None:
    assert expand_all(("echo", "$(A)", "$(A)b"), {"A": "1"}) == ["echo", "1", "1b"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "pi-0"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "pi"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "7"),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "runner"),
        ("status.hostIP", "10.0.0.1"),
        ("status.podIP", "10.0.0.2"),
    ],
)
async def test_a_field_of_the_pod(path: str, expected: str) -> None:
    source = EnvVarSource(field_ref=ObjectFieldSelector(field_path=path))

    assert await one(source) == expected


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        pytest.param("limits.cpu", None, "2", id="is rounded up to whole units"),
        pytest.param("limits.cpu", "1m", "1500", id="is counted in the divisor"),
        pytest.param("limits.memory", "1Mi", "8192", id="is the node's without a limit"),
        pytest.param("requests.memory", "1Mi", "64", id="may be a request"),
        pytest.param("requests.cpu", None, "0", id="is nothing without a request"),
    ],
)
async def test_a_resource(resource: str, divisor: str | None, expected: str) -> None:
    source = EnvVarSource(resource_field_ref=ResourceFieldSelector(resource=resource, divisor=divisor))
    resources = ResourceRequirements(limits={"cpu": "1500m"}, requests={"memory": "64Mi"})

    assert await one(source, resources=resources) == expected


async def test_variables_see_those_before_them() -> None:
    env = (EnvVar(name="B", value="$(A)"), EnvVar(name="A", value="1"), EnvVar(name="C", value="$(A)"))

    assert await resolve(POD, Container(env=env), "", LOOKUP) == {"B": "$(A)", "A": "1", "C": "1"}


async def test_whole_objects_come_first_and_single_variables_win() -> None:
    container = Container(
        env_from=(
            EnvFromSource(prefix="S_", config_map_ref=ConfigMapEnvSource(name="settings")),
            EnvFromSource(secret_ref=SecretEnvSource(name="keys")),
            EnvFromSource(secret_ref=SecretEnvSource(name="none", optional=True)),
        ),
        env=(EnvVar(name="S_size", value="4"),),
    )

    assert await resolve(POD, container, "", LOOKUP) == {"S_level": "debug", "S_size": "4", "token": "hush"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(
            EnvVarSource(config_map_key_ref=ConfigMapKeySelector(name="none", key="k")),
            'configmap "none" not found',
            id="the configmap is missing",
        ),
        pytest.param(
            EnvVarSource(secret_key_ref=SecretKeySelector(name="none", key="k")),
            'secret "none" not found',
            id="the secret is missing",
        ),
        pytest.param(
            EnvVarSource(config_map_key_ref=ConfigMapKeySelector(name="settings", key="k")),
            "couldn't find key k in ConfigMap default/settings",
            id="the configmap lacks the key",
        ),
        pytest.param(
            EnvVarSource(secret_key_ref=SecretKeySelector(name="keys", key="k")),
            "couldn't find key k in Secret default/keys",
            id="the secret lacks the key",
        ),
        pytest.param(
            EnvVarSource(field_ref=ObjectFieldSelector(field_path="spec.nothing")),
            "unsupported fieldPath: spec.nothing",
            id="there is no such field",
        ),
    ],
)
async def test_is_refused_when(source: EnvVarSource, message: str) -> None:
    with pytest.raises(ContainerConfigError) as refusal:
        await one(source)

    assert str(refusal.value) == message


async def test_a_key_that_may_be_missing_sets_nothing() -> None:
    source = EnvVarSource(secret_key_ref=SecretKeySelector(name="keys", key="k", optional=True))

    assert await one(source) is None


async def one(source: EnvVarSource, **container) -> str | None:
    env = await resolve(POD, Container(env=(EnvVar(name="X", value_from=source),), **container), "", LOOKUP)
    return env.get("X")
