"""What becomes of events that are told again: counted, combined, or not told. Without a database."""

from datetime import timedelta
from itertools import count

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.core.event import Event
from app.plans.plan import Create, Emit, Plan, Update
from app.registry import event_recorder
from app.registry.event_recorder import Recorder
from app.registry.plan_writer import write_set
from app.store import Key
from tests.build import NOW, a_job

REVISIONS = count(100)


class Teller:
    """A recorder whose drafts are all carried out, and the events as they are then."""

    def __init__(self) -> None:
        self.recorder = Recorder("job-controller")
        self.now = NOW
        self.stored: dict[str, Event] = {}

    def tell(self, *messages: str, about: Job | None = None, type_: str = "Normal", number: int = 1) -> str:
        """What was written for it: letters for created and updated."""
        emits = tuple(Emit(type_, "Reason", message, about or a_job(), number) for message in messages)
        draft = self.recorder.draft(Plan(emits), self.now)
        writes = write_set(draft.plan, [], "job-controller", self.now)
        for write in writes:
            if isinstance(write.object, Event):
                self.stored[write.key.name] = write.object
        draft.done(writes, [next(REVISIONS) for _ in writes])
        return "".join("A" if isinstance(each, Create) else "M" for each in draft.plan.actions)

    def told(self) -> list[tuple[str, int]]:
        return [(each.message, each.count) for each in self.stored.values()]


@pytest.fixture
def teller() -> Teller:
    return Teller()


def test_the_same_event_is_counted(teller: Teller) -> None:
    assert teller.tell("a") == "A"
    first = next(iter(teller.stored.values()))
    teller.now += timedelta(seconds=30)
    assert teller.tell("a") == "M"
    assert teller.tell("a") == "M"

    (event,) = teller.stored.values()
    assert (event.count, event.first_timestamp, event.last_timestamp) == (3, NOW, teller.now)
    assert event.metadata.uid == first.metadata.uid
    assert event.metadata.creation_timestamp == NOW


def test_told_twice_in_one_plan_it_is_written_once(teller: Teller) -> None:
    assert teller.tell("a", "a") == "A"
    assert teller.tell("a", "b", "a") == "MA"
    assert teller.told() == [("a", 4), ("b", 1)]


@pytest.mark.parametrize("more", [{"about": a_job(metadata={"uid": "other"})}, {"type_": "Warning"}], ids=str)
def test_another_event_is_told_by_itself(teller: Teller, more: dict[str, object]) -> None:
    teller.tell("a")
    assert teller.tell("a", **more) == "A"
    assert teller.tell("b") == "A"


def test_of_many_alike_the_later_are_combined(teller: Teller) -> None:
    assert teller.tell(*(f"n{n}" for n in range(9))) == "A" * 9
    assert teller.tell("n9") == "A"
    assert teller.tell("n10", "n11") == "M"

    assert teller.told()[-1] == ("(combined from similar events): n11", 3)
    assert teller.tell("n0") == "M"  # one that was told by itself still is
    assert teller.told()[0] == ("n0", 2)


def test_after_a_while_they_are_no_longer_alike(teller: Teller) -> None:
    teller.tell(*(f"n{n}" for n in range(10)))
    teller.now += timedelta(minutes=10, seconds=1)

    teller.tell("new")

    assert teller.told()[-1] == ("new", 1)


def test_what_a_plan_has_combined_is_not_combined_twice(teller: Teller) -> None:
    teller.tell("(combined from similar events): n19", number=10)
    teller.tell("(combined from similar events): n29", number=10)

    assert teller.told() == [("(combined from similar events): n29", 20)]


def test_about_one_object_no_more_is_told_than_anybody_reads(teller: Teller) -> None:
    assert "".join(teller.tell("a") for _ in range(30)) == "A" + "M" * 24
    assert teller.told() == [("a", 25)]

    teller.now += timedelta(minutes=5)
    assert teller.tell("a") == "M"
    assert teller.told() == [("a", 31)]  # nothing of it was lost
    assert teller.tell("a") == ""
    assert teller.tell("a", about=a_job(metadata={"uid": "other"})) == "A"


def test_what_was_not_told_at_first_is_told_with_its_count(teller: Teller) -> None:
    for _ in range(25):
        teller.tell("a")
    assert teller.tell("b") == ""
    teller.now += timedelta(minutes=5)

    assert teller.tell("b") == "A"
    assert teller.told()[-1] == ("b", 2)


def test_a_plan_that_is_not_carried_out_is_no_event(teller: Teller) -> None:
    for _ in range(100):
        teller.recorder.draft(Plan((Emit("Normal", "Reason", "a", a_job()),)), NOW)

    assert teller.tell("a") == "A"
    assert teller.told() == [("a", 1)]


def test_an_event_that_was_lost_is_told_anew(teller: Teller) -> None:
    teller.tell("a")
    (name,) = teller.stored

    assert not teller.recorder.forget([Key("pods", "default", name), Key("events", "default", "other")])
    assert teller.recorder.forget([Key("events", "default", name)])
    assert teller.tell("a") == "A"


def test_only_so_much_is_remembered(teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "MEMORY", 3)
    jobs = [a_job(metadata={"uid": str(n)}) for n in range(4)]
    for job in jobs:
        teller.tell("a", about=job)

    assert [teller.tell("a", about=job) for job in reversed(jobs)] == ["M", "M", "M", "A"]
    assert len(teller.recorder.seen) == len(teller.recorder.aggregates) == len(teller.recorder.buckets) == 3


def test_the_rest_of_the_plan_is_as_it_was() -> None:
    job = a_job()
    update = Update(replace(job, kind="Job"), job)
    plan = Plan((update,), again_at=NOW)

    assert Recorder("x").draft(plan, NOW).plan == plan
