"""Configuration that all container engines get: labels, and Kubernetes' limits as kernel numbers.

Labels say which agent, pod and container it is: any later agent of the node finds all that its predecessors made.
"""

from app.runtimes.base import ResourceLimits

NODE, POD, CONTAINER = "jobplane.dev/node", "jobplane.dev/pod-uid", "jobplane.dev/container"
TTY, STDIN = "jobplane.dev/tty", "jobplane.dev/stdin"
PERIOD = 100_000  # microseconds over which CPU time is shared out
LEAST_QUOTA, LEAST_SHARES = 1000, 2  # what the kernel takes
ENDS_FIRST = 1000  # the oom_score_adj of what asks for nothing, as Kubernetes has it for BestEffort pods

# What no container but a privileged one sees, or writes to; Kubernetes' own list.
MASKED = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def quota(cpu: int) -> int:
    return max(LEAST_QUOTA, cpu * PERIOD // 1000)


def shares(limits: ResourceLimits) -> int:
    return max(LEAST_SHARES, (limits.cpu_request or 0) * 1024 // 1000)
