"""Lives of Jobs, one after another, each made from a shape and a seed: what `tests.plans.jobs.test_simulation` runs.

A life is chaos first; then nothing fails any more, time goes on, and the Job must come to its end.
"""

from collections import Counter, deque
from collections.abc import Callable
from datetime import timedelta
from random import Random

from msgspec.structs import asdict

from app.kinds.batch.job import Job, is_finished
from app.plans.jobs import job as job_plan
from tests.build import NOW
from tests.plans.jobs.simulation import moves
from tests.plans.jobs.simulation.controller import Controller, PlanJob
from tests.plans.jobs.simulation.shapes import draw
from tests.plans.jobs.simulation.sight import TRACKING
from tests.plans.jobs.simulation.world import ENDED, World, is_mine

CHAOS = 300  # events at most, before peace
AFTERLIFE = 15  # events after the Job has ended
PEACE = 600  # events at most until it must have ended
SHOWN = 40  # of the last events, if something is wrong

Tell = Callable[[str], None]


class Life:
    def __init__(self, shape: str, seed: int, plan_job: PlanJob = job_plan.plan, tell: Tell | None = None) -> None:
        self.shape, self.seed = shape, seed
        self.rng = Random(f"{shape}-{seed}")
        self.world = World(draw(shape, self.rng, NOW))
        self.controller = Controller(self.world, plan_job)
        self.steps = 0
        self.ends = "unfinished"
        self._told: deque[str] = deque(maxlen=SHOWN)
        self._tell = tell

    def live(self) -> int:
        """From the first event to the end. How many events it took; AssertionError with the story if a rule is broken."""
        try:
            self._chaos()
            self._peace()
            self._check_end()
        except Exception as error:
            raise AssertionError(self._story(error)) from error
        return self.steps

    def _note(self, what: str) -> None:
        self.steps += 1
        self._told.append(what)
        if self._tell is not None:
            self._tell(f"{self.steps:4} {self.world.now:%H:%M:%S} {what}")

    def _chaos(self) -> None:
        controller, random, world = self.controller, self.rng.random, self.world
        table = moves.UNLUCKY if random() < 0.2 else moves.ORDINARY
        count = len(table)
        last, revision = CHAOS, 0
        while self.steps < last:
            note = table[int(random() * count)](controller, self.rng)
            if note is None:
                continue
            self._note(note)
            if revision != world.revision:
                revision = world.revision
                if last == CHAOS and (world.job is None or is_finished(world.job)):
                    last = min(CHAOS, self.steps + AFTERLIFE)

    def _peace(self) -> None:
        for _ in range(PEACE):
            note = self._step_in_peace()
            if note is None:
                return
            self._note(note)
        raise AssertionError("there is no end to it")

    def _step_in_peace(self) -> str | None:
        controller, world = self.controller, self.world
        if world.job is not None and controller.awake:
            controller.sync()
            return "sync"
        if world.collect():
            return "garbage is collected"
        for uid in world.living:
            pod = world.pods[uid]
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                return moves.end(world, pod, 0)
            if note := moves.advanced(world, pod, self.rng):
                return note
        if controller.due is not None and world.job is not None:
            world.now = max(world.now + timedelta(seconds=1), controller.due)
            return "the time comes"
        return None

    def _check_end(self) -> None:
        world, job = self.world, self.world.job
        mine = [pod for pod in world.pods.values() if is_mine(pod)]
        tracked = [pod.metadata.name for pod in mine if TRACKING in pod.metadata.finalizers]
        assert not tracked, f"at the end {tracked} still wait to be counted"
        if job is None:
            self.ends = "deleted"
            assert not mine, "pods outlive a Job that did not orphan them"
            return
        assert all(pod.status.phase in ENDED for pod in mine), "pods go on for ever"
        self.ends = _end_of(job)
        assert self.ends, "the Job does not end"

    def _story(self, error: Exception) -> str:
        job = self.world.job
        lines = [
            f"{error}",
            f"after {self.steps} events of the {self.shape} Job of seed {self.seed}; the last were:",
            *(f"  {each}" for each in self._told),
            f"at {self.world.now:%H:%M:%S} {job.status if job else 'the Job is gone'}",
            f"spec {_shown(job)}" if job else "",
            *(
                f"  {pod.metadata.name} {pod.status.phase} {pod.metadata.finalizers} deleted {pod.metadata.deletion_timestamp}"
                for pod in self.world.pods.values()
            ),
            f"to see it alone: python -m tests.plans.simulation {self.shape} {self.seed}",
        ]
        return "\n".join(lines)


def _shown(job: Job) -> str:
    return ", ".join(
        f"{name}={value}" for name, value in asdict(job.spec).items() if value is not None and name != "template"
    )


def _end_of(job: Job) -> str:
    """How a Job stands when nothing more will happen; nothing at all if it should have gone on."""
    ended = next((each for each in job.status.conditions if each.type in ("Complete", "Failed")), None)
    if ended is not None:
        return f"{ended.type} {ended.reason}"
    if job.spec.suspend:
        return "suspended"
    return "without parallelism" if job.spec.parallelism == 0 else ""


def live_many(shape: str, steps: int, first_seed: int = 0, plan_job: PlanJob = job_plan.plan) -> Counter[str]:
    """One life after the other until there were so many events. How many of them ended in which way, and all events."""
    ends: Counter[str] = Counter()
    seed = first_seed
    while ends["events"] < steps:
        life = Life(shape, seed, plan_job)
        ends["events"] += life.live()
        ends[life.ends] += 1
        seed += 1
    return ends
