"""Configuration that all container engines get: labels, and Kubernetes' limits as kernel numbers.

Labels say which agent, pod and container it is: any later agent of the node finds all that its predecessors made.
"""

from app.runtimes.base import ResourceLimits

NODE, POD, CONTAINER = "jobplane.dev/node", "jobplane.dev/pod-uid", "jobplane.dev/container"
TTY, STDIN = "jobplane.dev/tty", "jobplane.dev/stdin"
PERIOD = 100_000  # microseconds over which CPU time is shared out
LEAST_QUOTA, LEAST_SHARES = 1000, 2  # what the kernel takes
ENDS_FIRST = 1000  # the oom_score_adj of what asks for nothing, as Kubernetes has it for BestEffort pods


def quota(cpu: int) -> int:
    return max(LEAST_QUOTA, cpu * PERIOD // 1000)


def shares(limits: ResourceLimits) -> int:
    return max(LEAST_SHARES, (limits.cpu_request or 0) * 1024 // 1000)
