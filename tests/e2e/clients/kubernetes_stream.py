"""The official Python client's streams: exec with input and an exit code, attach, a port. Prints what it saw."""

import http.client
import json
import sys

from kubernetes import client, config
from kubernetes.stream import portforward, stream

config.load_kube_config()
core = client.CoreV1Api()
NAME, NAMESPACE, PORT = "streamed", "default", int(sys.argv[1])
SHOWN = {"stdin": True, "stdout": True, "stderr": True, "tty": False}


def execute(*command: str) -> object:
    return stream(
        core.connect_get_namespaced_pod_exec, NAME, NAMESPACE, command=list(command), _preload_content=False, **SHOWN
    )


talk = execute("sh", "-c", "read line; echo got $line; echo aside >&2; exit 3")
talk.write_stdin("one\n")
talk.run_forever(timeout=30)
talked = [talk.read_stdout(), talk.read_stderr(), talk.returncode]

attached = stream(core.connect_get_namespaced_pod_attach, NAME, NAMESPACE, _preload_content=False, **SHOWN)
attached.write_stdin("two\n")
heard = attached.readline_stdout(timeout=30)
attached.close()

forward = portforward(core.connect_get_namespaced_pod_portforward, NAME, NAMESPACE, ports=str(PORT))
connection = http.client.HTTPConnection("pod")
connection.sock = forward.socket(PORT)
connection.sock.setblocking(True)
connection.request("GET", "/")
served = connection.getresponse().read().decode()

refused = "nothing"
try:
    stream(core.connect_get_namespaced_pod_exec, "nix", NAMESPACE, command=["ls"], **SHOWN)
except client.ApiException as error:
    refused = error.reason.split(" -+-+- ")[0]  # the status is 0, whatever a handshake was answered with

print(json.dumps({"talked": talked, "heard": heard, "served": served, "refused": refused}))
