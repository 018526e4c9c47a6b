"""Numbers of the runners' queues, under the names that Kubernetes' controllers share; `name` is the controller's component."""

from app.metrics.registry import MetricsRegistry

_LABELS = ("name",)


class WorkqueueMetrics:
    """Metrics of one runner's work queue."""

    def __init__(self, metrics: MetricsRegistry, name: str) -> None:
        self._name = name
        self._adds = metrics.counter("workqueue_adds_total", "Keys that were put into the queue.", _LABELS)
        self._depth = metrics.gauge("workqueue_depth", "Keys in the queue.", _LABELS)
        self._waits = metrics.histogram(
            "workqueue_queue_duration_seconds", "How long a key was in the queue, in seconds.", _LABELS
        )
        self._works = metrics.histogram(
            "workqueue_work_duration_seconds",
            "How long it took to reconcile a key, commit included, in seconds.",
            _LABELS,
        )
        self._retries = metrics.counter(
            "workqueue_retries_total", "Keys that are tried again after a failure.", _LABELS
        )
        self._depth.set(0, name)

    def note_added(self, depth: int) -> None:
        self._adds.inc(self._name)
        self._depth.set(depth, self._name)

    def note_taken(self, waited: float) -> None:
        self._waits.observe(waited, self._name)

    def note_depth(self, depth: int) -> None:
        self._depth.set(depth, self._name)

    def note_worked(self, seconds: float) -> None:
        self._works.observe(seconds, self._name)

    def note_retry(self) -> None:
        self._retries.inc(self._name)
