"""The Pod kind: defaults, what the server sets, deletion, warnings."""

from typing import get_type_hints

import msgspec
import pytest
import yaml
from msgspec.structs import fields, replace

from app.kinds.pod import affinity, container, pod_schema, probe, security, volume
from app.kinds.pod.pod import KIND, Pod, condition, is_active, is_ready, is_terminal, on_create, on_status
from app.kinds.pod.pod_defaults import default_pod, default_pod_spec
from app.kinds.pod.pod_validation import validate_pod, validate_pod_status
from app.kinds.pod.pod_warnings import TEXT, warnings_of_spec
from app.machinery.base import Struct
from app.machinery.decoding.decode import decode
from tests.build import NOW
from tests.kinds.pods import a_pod, made, said, wire


def test_defaults_of_a_template():
    spec = default_pod_spec(a_pod(main={"resources": {"limits": {"cpu": "0.5"}}}, restartPolicy="").spec)

    assert wire(spec) == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {"limits": {"cpu": "500m"}},
            }
        ],
    }


def test_defaults_of_a_pod():
    given = made(main={"resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "0.5"}}})
    pod = wire(on_create(given, NOW))

    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert [each["key"] for each in pod["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    expected = {"priority": 0, "enableServiceLinks": True, "serviceAccountName": "default", "serviceAccount": "default"}
    assert pod["spec"].items() >= expected.items()


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        pytest.param({"image": "a"}, {"imagePullPolicy": "Always"}, id="no tag is pulled always"),
        pytest.param({"image": "h:5000/a"}, {"imagePullPolicy": "Always"}, id="a registry's port is no tag"),
        pytest.param({"image": "a:latest"}, {"imagePullPolicy": "Always"}, id="latest is pulled always"),
        pytest.param({"image": "a:1"}, {"imagePullPolicy": "IfNotPresent"}, id="a tag is pulled once"),
        pytest.param({"image": "a@sha256:0"}, {"imagePullPolicy": "IfNotPresent"}, id="a digest is pulled once"),
        pytest.param(
            {"ports": [{"containerPort": 80}]},
            {"ports": [{"containerPort": 80, "protocol": "TCP"}]},
            id="ports speak TCP",
        ),
        pytest.param(
            {"livenessProbe": {"httpGet": {"port": 80}}},
            {
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                }
            },
            id="probes",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]},
            id="fields are of v1",
        ),
    ],
)
def test_defaults_of_a_container(main, expected):
    container = wire(default_pod_spec(a_pod(main=main).spec))["containers"][0]

    assert container.items() >= expected.items()


def test_defaults_of_volumes():
    volumes = [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "configMap": {"name": "m"}}]

    assert wire(default_pod_spec(a_pod(volumes=volumes).spec))["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "configMap": {"name": "m", "defaultMode": 420}},
    ]


def test_a_pod_that_tolerates_everything_gets_no_tolerations():
    assert len(made(tolerations=[{"operator": "Exists"}]).spec.tolerations) == 1


def test_what_needs_no_defaults_is_the_same_object():
    pod = made(
        main={"resources": {"limits": {"cpu": "1"}}, "env": [{"name": "A", "value": "b"}]}, volumes=[{"name": "v"}]
    )
    template = default_pod_spec(a_pod(volumes=[{"name": "v"}]).spec)

    assert default_pod(pod) is pod
    assert default_pod_spec(template) is template
    assert default_pod(Pod(spec=template)).spec.volumes is template.volumes


def test_a_client_neither_sets_nor_changes_the_status():
    claimed = made(status={"phase": "Succeeded", "qosClass": "Guaranteed", "podIP": "1.2.3.4"})
    created = KIND.on_create(claimed, NOW)
    updated = KIND.on_update(claimed, created)

    assert wire(created.status) == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created.metadata.generation == 1
    assert updated.status == created.status
    assert updated.metadata.generation == 1
    assert KIND.on_update(made(activeDeadlineSeconds=1), created).metadata.generation == 2


def test_a_gated_pod_is_born_with_a_condition():
    pod = KIND.on_create(made(schedulingGates=[{"name": "g"}]), NOW)

    assert condition(pod.status.conditions, "PodScheduled").reason == "SchedulingGated"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"nodeName": "n"}, 30, id="thirty seconds"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": 5}, 5, id="as the spec says"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": -5}, 1, id="never less than none"),
        pytest.param({}, 0, id="none without a node"),
        pytest.param({"nodeName": "n", "status": {"phase": "Failed"}}, 0, id="none after the end"),
    ],
)
def test_grace(parts, expected):
    assert KIND.grace(made(**parts)) == expected


def test_warns_of_what_has_no_effect_and_only_once():
    pod = made(
        main={"lifecycle": {"stopSignal": "SIGINT"}, "env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]},
        volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "iscsi": {"iqn": "i"}}],
        hostUsers=False,
        hostNetwork=True,
        securityContext={"runAsUser": 1, "sysctls": [{"name": "a", "value": "b"}]},
    )

    assert warnings_of_spec(pod.spec, "spec.template.spec") == [
        f"spec.template.spec.{path}: {TEXT}"
        for path in (
            "volumes[1].iscsi",
            "containers[0].env[0].valueFrom.fileKeyRef",
            "containers[0].lifecycle.stopSignal",
            "hostUsers",
            "securityContext.sysctls",
        )
    ]
    assert KIND.warnings(pod, None)
    assert KIND.warnings(pod, pod) == []
    assert KIND.warnings(pod, msgspec.structs.replace(pod, spec=pod_schema.PodSpec())) == []


def test_warns_of_owners_of_single_files():
    items = [{"key": "a", "path": "a", "mode": 256, "user": 1}]
    pod = made(
        main={"terminationMessagePolicy": "FallbackToLogsOnError", "readinessProbe": {"exec": {"command": ["a"]}}},
        volumes=[{"name": "v", "projected": {"sources": [{"secret": {"name": "s", "items": items}}]}}],
    )

    assert warnings_of_spec(pod.spec, "spec") == [
        f"spec.volumes[0].projected.sources[0].secret.items[0].user: {TEXT}",
    ]


def test_observed_generations_are_not_kept():
    condition = {"type": "Ready", "status": "True"}
    status = {"observedGeneration": 2, "conditions": [condition | {"observedGeneration": 2}]}
    pod = msgspec.structs.replace(made(), status=msgspec.convert(status, pod_schema.PodStatus))

    found = default_pod(pod).status

    assert found.observed_generation is None
    assert msgspec.to_builtins(found.conditions) == (condition,)


def test_the_example_is_valid_and_without_warnings():
    pod = default_pod(msgspec.convert(yaml.safe_load(KIND.example), Pod))

    assert said(validate_pod(pod)) == []
    assert KIND.warnings(pod, None) == []


def test_states():
    ready = a_pod(status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    ended = a_pod(status={"phase": "Failed"})
    leaving = a_pod(status={"phase": "Running"}, metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})

    assert [is_terminal(each) for each in (ready, ended, leaving)] == [False, True, False]
    assert [is_active(each) for each in (ready, ended, leaving)] == [True, False, False]
    assert [is_ready(each) for each in (ready, ended, leaving)] == [True, False, False]


STRUCTS = [
    each
    for module in (affinity, container, pod_schema, probe, security, volume)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Struct) and each.__module__ == module.__name__
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_everything_is_described(struct):
    hints = get_type_hints(struct, include_extras=True)

    assert struct.__doc__
    assert [each.name for each in fields(struct) if not hints[each.name].__metadata__[-1].description] == []


def test_the_quality_of_service_of_a_pod_stays():
    old = on_create(made(), NOW)
    silent = on_status(replace(old, status=replace(old.status, qos_class="")), old)
    other = on_status(replace(old, status=replace(old.status, qos_class="Guaranteed")), old)

    assert silent == old
    assert validate_pod_status(silent, old) == []
    (cause,) = validate_pod_status(other, old)
    assert (cause.field, cause.message) == ("status.qosClass", 'Invalid value: "Guaranteed": field is immutable')


def test_parts_that_nothing_acts_on_are_known_field_by_field():
    certificate = {"signerName": "example.com/pods", "keyType": "ED25519", "userName": "typo"}
    variable = {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "A"}}}
    spec = {
        "containers": [{"name": "main", "image": "busybox", "env": [variable]}],
        "volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": certificate}]}}],
    }
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})

    pod, unknown = decode(body, Pod, api_version="v1", validation="Warn")

    assert wire(pod)["spec"]["containers"][0]["env"] == [variable]
    assert pod.spec.volumes[0].projected.sources[0].pod_certificate.key_type == "ED25519"
    assert unknown == ['unknown field "spec.volumes[0].projected.sources[0].podCertificate.userName"']
