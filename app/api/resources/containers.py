"""Container of a pod that a request means. Called by logs, exec, attach and port-forward."""

from app.kinds.pod.pod import Pod
from app.machinery.errors import bad_request


def chosen(pod: Pod, asked: str) -> str:
    """The one that was asked for, or the only one. 400 as Kubernetes words it (core/pod/strategy.go)."""
    names = [each.name for each in (*pod.spec.init_containers, *pod.spec.containers)]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {pod.metadata.name}")
        return asked
    if len(pod.spec.containers) == 1:
        return pod.spec.containers[0].name
    raise bad_request(
        f"a container name must be specified for pod {pod.metadata.name}, choose one of: [{' '.join(names)}]"
    )
