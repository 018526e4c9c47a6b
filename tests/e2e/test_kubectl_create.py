"""What `kubectl create`, `run` and `expose` make, for real and in dry runs. From 1.32 on, those without a file send protobuf."""

import json
import re

import yaml

from tests.e2e.kubectl import COMPLETE, TIMEOUT, Kubectl, on_every_version, words
from tests.e2e.manifests import a_configmap, a_job

POD_SUCCEEDED = "--for=jsonpath={.status.phase}=Succeeded"


@on_every_version
def test_a_file_of_several_documents_makes_them_all(kubectl: Kubectl) -> None:
    documents = [a_configmap("first", a="b"), a_job("second", "true", suspend=True)]
    assert kubectl.send("create", *documents) == "configmap/first created\njob.batch/second created\n"
    again = kubectl.send("create", *documents, code=1)
    assert 'Error from server (AlreadyExists): error when creating "STDIN": configmaps "first" already exists' in again
    assert 'Error from server (AlreadyExists): error when creating "STDIN": jobs.batch "second" already exists' in again


@on_every_version
def test_a_folder_and_generated_names_are_taken(kubectl: Kubectl) -> None:
    kubectl.file("folder/one.json", json.dumps(a_configmap("in-folder")))
    kubectl.file("folder/two.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: in-folder}\nstringData: {a: b}\n")
    made = kubectl("create", "-f", str(kubectl.home / "folder"))
    assert made == "configmap/in-folder created\nsecret/in-folder created\n"
    generated = a_job("", "true", suspend=True)
    generated["metadata"] = {"generateName": "made-"}
    assert re.fullmatch(r"job.batch/made-\w{5} created\n", kubectl.send("create", generated))


@on_every_version
def test_dry_runs_store_nothing(kubectl: Kubectl) -> None:
    dry = a_job("dry", "true")
    assert kubectl.send("create", dry, options=["--dry-run=server"]) == "job.batch/dry created (server dry run)\n"
    assert kubectl.send("create", dry, options=["--dry-run=client"]) == "job.batch/dry created (dry run)\n"
    served = yaml.safe_load(kubectl.send("create", dry, options=["--dry-run=server", "-o", "yaml"]))
    assert served["spec"]["backoffLimit"] == 6
    unserved = yaml.safe_load(kubectl.send("create", dry, options=["--dry-run=client", "-o", "yaml"]))
    assert "backoffLimit" not in unserved["spec"]
    assert kubectl("create", "job", "dry", "--image=busybox", "--dry-run=server") == (
        "job.batch/dry created (server dry run)\n"
    )
    assert kubectl("get", "job", "dry", code=1) == 'Error from server (NotFound): jobs.batch "dry" not found\n'


@on_every_version
def test_all_unknown_fields_are_named(kubectl: Kubectl) -> None:
    typo = a_job("typo", "true", backofLimit=1, pod={"restartPolicie": "Never"})
    typo["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    unknown = (
        'unknown field "spec.backofLimit", unknown field "spec.template.spec.containers[0].imagee", '
        'unknown field "spec.template.spec.restartPolicie"'
    )
    assert f"strict decoding error: {unknown}" in kubectl.send("create", typo, code=1)
    assert "(NotFound)" in kubectl("get", "job", "typo", code=1)
    warned = kubectl.send("create", typo, options=["--validate=warn", "--dry-run=server"])
    for each in unknown.split(", "):
        assert f"Warning: {each}\n" in warned
    ignored = kubectl.send("create", typo, options=["--validate=ignore", "--dry-run=server"])
    assert ignored == "job.batch/typo created (server dry run)\n"


@on_every_version
def test_all_that_is_invalid_is_named(kubectl: Kubectl) -> None:
    wrong = a_job("Wrong", "true", parallelism=-1, pod={"restartPolicy": "Always"})
    said = kubectl.send("create", wrong, code=1)
    assert 'The Job "Wrong" is invalid: \n' in said
    assert '* metadata.name: Invalid value: "Wrong": a lowercase RFC 1123 subdomain must consist of' in said
    assert "* spec.parallelism: Invalid value: -1: must be greater than or equal to 0\n" in said
    assert '* spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"\n' in said


@on_every_version
def test_what_cannot_be_made_is_refused_in_words(kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "nix.yaml", code=1) == 'error: the path "nix.yaml" does not exist\n'
    unknown = {"apiVersion": "batch/v9", "kind": "Job", "metadata": {"name": "x"}}
    assert 'no matches for kind "Job" in version "batch/v9"' in kubectl.send("create", unknown, code=1)
    elsewhere = a_configmap("x") | {"metadata": {"name": "x", "namespace": "elsewhere"}}
    assert "does not match the namespace" in kubectl.send("create", elsewhere, code=1)
    nowhere = kubectl("create", "configmap", "x", "-n", "nowhere", code=1)
    assert re.search(r'\(NotFound\)|failed to create configmap: namespaces "nowhere" not found', nowhere)
    assert 'namespaces "nowhere" not found' in nowhere
    again = kubectl("create", "namespace", kubectl.namespace, code=1)
    assert again == f'Error from server (AlreadyExists): namespaces "{kubectl.namespace}" already exists\n'


@on_every_version
def test_create_job_runs_its_command(kubectl: Kubectl) -> None:
    made = kubectl("create", "job", "typed", "--image=busybox", "--", "sh", "-c", "echo hello")
    assert made == "job.batch/typed created\n"
    kubectl("wait", COMPLETE, "job/typed", TIMEOUT)
    assert kubectl("logs", "job/typed") == "hello\n"
    again = kubectl("create", "job", "typed", "--image=busybox", code=1)
    assert again == 'error: failed to create job: jobs.batch "typed" already exists\n'


@on_every_version
def test_a_cronjob_is_made_and_a_job_from_it(kubectl: Kubectl) -> None:
    schedule = ("--schedule=0 0 1 1 *", "--image=busybox")
    assert kubectl("create", "cronjob", "yearly", *schedule, "--", "echo", "once") == "cronjob.batch/yearly created\n"
    assert kubectl("create", "job", "now", "--from=cronjob/yearly") == "job.batch/now created\n"
    kubectl("wait", COMPLETE, "job/now", TIMEOUT)
    assert kubectl("logs", "job/now") == "once\n"
    job = kubectl.stored("job", "now")["metadata"]
    assert job["annotations"] == {"cronjob.kubernetes.io/instantiate": "manual"}
    assert [each["name"] for each in job["ownerReferences"]] == ["yearly"]
    missing = kubectl("create", "job", "never", "--from=cronjob/nix", code=1)
    assert missing == 'Error from server (NotFound): cronjobs.batch "nix" not found\n'
    wrong = kubectl("create", "cronjob", "wrong", "--image=busybox", "--schedule=often", code=1)
    assert 'CronJob.batch "wrong" is invalid: spec.schedule: Invalid value: "often"' in wrong


@on_every_version
def test_a_configmap_is_made_of_literals_and_files(kubectl: Kubectl) -> None:
    file = kubectl.file("paint.txt", "blue\n")
    made = kubectl("create", "configmap", "colours", "--from-literal=sky=grey", f"--from-file={file}")
    assert made == "configmap/colours created\n"
    assert kubectl.stored("cm", "colours")["data"] == {"sky": "grey", "paint.txt": "blue\n"}
    environment = kubectl.file("paint.env", "A=1\nB=2\n")
    kubectl("create", "configmap", "settings", f"--from-env-file={environment}")
    assert kubectl.stored("cm", "settings")["data"] == {"A": "1", "B": "2"}
    binary = kubectl.home / "bytes"
    binary.write_bytes(b"\xff\xfe\x00")
    kubectl("create", "configmap", "binary", f"--from-file={binary}")
    assert kubectl.stored("cm", "binary")["binaryData"] == {"bytes": "//4A"}


@on_every_version
def test_secrets_are_made_and_kept_encoded(kubectl: Kubectl) -> None:
    assert kubectl("create", "secret", "generic", "door", "--from-literal=key=open") == "secret/door created\n"
    assert kubectl("get", "secret", "door", "-o", "jsonpath={.type} {.data.key}") == "Opaque b3Blbg=="
    registry = ("--docker-server=r.example", "--docker-username=u", "--docker-password=p")
    assert kubectl("create", "secret", "docker-registry", "pull", *registry) == "secret/pull created\n"
    assert kubectl("get", "secret", "pull", "-o", "jsonpath={.type}") == "kubernetes.io/dockerconfigjson"


@on_every_version
def test_create_quota_limits_the_namespace(kubectl: Kubectl) -> None:
    own = kubectl.apart("quota")
    assert (
        own("create", "quota", "few", "--hard=count/jobs.batch=1,count/configmaps=3") == "resourcequota/few created\n"
    )
    own("wait", "--for=jsonpath={.status.hard.count/jobs\\.batch}=1", "quota/few", TIMEOUT)
    assert own("create", "job", "first", "--image=busybox", "--", "true") == "job.batch/first created\n"
    refused = own("create", "job", "second", "--image=busybox", "--", "true", code=1)
    assert refused == (
        'error: failed to create job: jobs.batch "second" is forbidden: exceeded quota: few, '
        "requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1\n"
    )
    told = words(own("get", "quota"))
    assert re.search(r"^few (\S+ )?.*count/jobs.batch: 1/1", told, re.MULTILINE)


@on_every_version
def test_priority_classes_accounts_and_disruption_budgets_are_made(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace}-made"
    made = kubectl("create", "priorityclass", name, "--value=10", "--description=of the tests")
    assert made == f"priorityclass.scheduling.k8s.io/{name} created\n"
    assert words(kubectl("get", "pc", name, "--no-headers")).startswith(f"{name} 10 false ")
    assert "deleted" in kubectl("delete", "pc", name)
    assert kubectl("create", "serviceaccount", "bot") == "serviceaccount/bot created\n"
    made = kubectl("create", "pdb", "most", "--selector=app=x", "--min-available=1")
    assert made == "poddisruptionbudget.policy/most created\n"
    assert re.search(r"^most 1 N/A 0 \d+s$", words(kubectl("get", "pdb", "most")), re.MULTILINE)


@on_every_version
def test_run_makes_a_pod(kubectl: Kubectl) -> None:
    command = ("run", "once", "--image=busybox", "--restart=Never")
    assert kubectl(*command, "--dry-run=server") == "pod/once created (server dry run)\n"
    dry = yaml.safe_load(kubectl(*command, "--dry-run=client", "-o", "yaml", "--labels=a=b"))
    assert dry["metadata"]["labels"] == {"a": "b"}
    made = kubectl(*command, "--env=WORD=hi", "--command", "--", "sh", "-c", "echo $WORD")
    assert made == "pod/once created\n"
    kubectl("wait", POD_SUCCEEDED, "pod/once", TIMEOUT)
    assert kubectl("logs", "once") == "hi\n"
    again = kubectl(*command, code=1)
    assert again == 'Error from server (AlreadyExists): pods "once" already exists\n'


@on_every_version
def test_expose_makes_a_service_and_says_that_nothing_routes_to_it(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=busybox", "--restart=Never", "--", "true")
    made = kubectl("expose", "pod", "web", "--port=80")
    assert made.endswith("service/web exposed\n")
    assert made.startswith("Warning: spec.type: ")
    assert re.search(r"^web ClusterIP \S+ <none> 80/TCP \d+s$", words(kubectl("get", "svc")), re.MULTILINE)
    kubectl.send("create", a_job("unexposed", "true", suspend=True))
    assert kubectl("expose", "job", "unexposed", "--port=80", code=1) == "error: cannot expose a Job.batch\n"
