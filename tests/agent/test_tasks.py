"""Work that comes all at once leaves room in every round of the event loop."""

import asyncio

from app.agent.tasks import Pace


async def test_no_round_of_the_loop_has_more_turns_than_it_may() -> None:
    pace, rounds, done = Pace(3), 0, []

    async def count_rounds() -> None:
        nonlocal rounds
        while len(done) < 20:
            rounds += 1
            await asyncio.sleep(0)

    async def work(number: int) -> None:
        await pace.turn()
        done.append((rounds, number))

    counting = asyncio.create_task(count_rounds())
    await asyncio.gather(counting, *map(work, range(20)))

    assert [number for _, number in done] == list(range(20))
    assert max(sum(at == each for at, _ in done) for each in range(rounds + 1)) == 3


async def test_a_turn_that_is_given_up_goes_to_the_next() -> None:
    pace, done = Pace(1), []

    async def work(number: int) -> None:
        await pace.turn()
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert done == [0, 2, 3]


async def test_turns_one_after_the_other_all_come() -> None:
    pace = Pace(1)
    for _ in range(3):
        await pace.turn()
