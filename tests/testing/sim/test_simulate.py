"""Virtual time: it jumps, its order comes from the seed, it replays exactly, and it notices when nothing can go on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.model.base.time import seconds
from holdfast.store.api import StoreAway
from holdfast.testing import FakeStore, Stuck, World, first_failure, simulate


async def bustle(world: World) -> list[str]:
    """Three writers, one reader, a kill and a pause: enough for two orders to differ."""
    heard: list[str] = []

    async def write(name: str) -> None:
        node = world.node(name)
        store = node.store()
        for n in range(10):
            await asyncio.sleep(node.random.uniform(0, 0.01))
            await store.put(f"k/{name}".encode(), str(n).encode())

    async def read() -> None:
        async for news in world.node("reader").store().watch(b"k/"):
            heard.append(f"{news.revision}")

    world.node("reader").run(read())
    for name in ("a", "b", "c"):
        world.node(name).run(write(name))
    await asyncio.sleep(0.02)
    world.node("a").kill()
    world.node("b").pause()
    await asyncio.sleep(1)
    world.node("b").resume()
    async with asyncio.TaskGroup() as together:
        for name in ("d", "e"):
            together.create_task(write(name))
    await asyncio.sleep(1)
    return heard


def test_the_same_seed_gives_the_same_trace_byte_for_byte() -> None:
    first, second = simulate(1, bustle), simulate(1, bustle)
    assert first.trace.text == second.trace.text
    assert first.value == second.value


def test_another_seed_gives_another_order() -> None:
    assert simulate(1, bustle).trace.text != simulate(2, bustle).trace.text


def test_a_seed_replays_in_another_process_with_another_hash_seed() -> None:
    program = "from tests.testing.sim.test_simulate import bustle; from holdfast.testing import simulate; "
    program += "import sys; sys.stdout.write(simulate(1, bustle).trace.text)"
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert texts == {simulate(1, bustle).trace.text.encode()}


def test_a_day_takes_no_time() -> None:
    async def wait(world: World) -> float:
        await asyncio.sleep(86_000)
        return world.time

    begun = time.monotonic()
    assert simulate(1, wait).value == pytest.approx(86_000)
    assert time.monotonic() - begun < 60


def test_tasks_that_are_ready_together_run_in_an_order_drawn_from_the_seed() -> None:
    async def race(world: World) -> str:
        order: list[str] = []

        async def run(name: str) -> None:
            await asyncio.sleep(1)
            order.append(name)

        await asyncio.gather(*(run(name) for name in "abcd"))
        return "".join(order)

    assert len({simulate(seed, race).value for seed in range(40)}) > 10


def test_plain_callbacks_of_one_node_keep_their_order() -> None:
    async def line(world: World) -> list[int]:
        order: list[int] = []
        for n in range(10):
            asyncio.get_running_loop().call_soon(order.append, n)
        await asyncio.sleep(0.1)
        return order

    assert all(simulate(seed, line).value == list(range(10)) for seed in range(20))


def test_a_deadlock_names_who_waits() -> None:
    async def wait_for_ever(world: World) -> None:
        world.node("a").run(asyncio.Event().wait())
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match=r"(?s)deadlock.*a\.1/Event\.wait of a\.1"):
        simulate(1, wait_for_ever)


def test_a_loop_in_which_time_stands_still_is_an_error() -> None:
    async def spin(world: World) -> None:
        while world.time == 0:
            await asyncio.sleep(0)
            world.random.random()

    with pytest.raises(Stuck, match="time stands still"):
        simulate(1, spin)


def test_a_scenario_without_an_end_is_an_error() -> None:
    async def tick(world: World) -> None:
        while True:
            await asyncio.sleep(1)
            world.note("tick")

    with pytest.raises(Stuck, match="no end after 100 s"):
        simulate(1, tick, limit=seconds(100))


def test_there_are_no_threads_and_no_sockets() -> None:
    async def cheat(world: World) -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(time.sleep, 0)
        with pytest.raises((RuntimeError, NotImplementedError)):
            await asyncio.open_connection("127.0.0.1", 1)

    simulate(1, cheat)


def test_a_failure_carries_its_seed_and_its_story() -> None:
    async def fail(world: World) -> None:
        await world.node("a").store().put(b"k", b"v")
        raise AssertionError("two leaders")

    with pytest.raises(AssertionError, match="two leaders") as failed:
        simulate(42, fail)
    (note,) = failed.value.__notes__
    assert "seed 42: simulate(42," in note
    assert "a.1 writes revision 2: put b'k'" in note


def test_a_node_that_fails_fails_the_simulation_at_once() -> None:
    async def crash() -> None:
        raise ValueError("bad day")

    async def scenario(world: World) -> None:
        world.node("a").run(crash())
        await asyncio.sleep(1_000_000)

    with pytest.raises(ValueError, match="bad day"):
        simulate(1, scenario)


def test_an_invariant_checked_at_every_write_fails_the_simulation() -> None:
    async def scenario(world: World) -> None:
        def check(write: object) -> None:
            raise AssertionError("this write must not be")

        world.store.observers.append(check)
        await world.node("a").store().put(b"k", b"v")

    with pytest.raises(AssertionError, match="must not be"):
        simulate(1, scenario)


def test_the_first_seed_that_fails_is_found() -> None:
    async def scenario(world: World) -> None:
        assert world.random.random() < 0.9

    failure = first_failure(range(1_000), scenario)
    assert failure is not None
    with pytest.raises(AssertionError):
        simulate(failure.seed, scenario)
    assert first_failure(range(failure.seed), scenario) is None


def test_a_killed_process_runs_not_one_more_line() -> None:
    async def scenario(world: World) -> tuple[list[str], int]:
        lines: list[str] = []
        store = world.node("a").store()

        async def work() -> None:
            try:
                while True:
                    lines.append("works")
                    await asyncio.sleep(1)
            finally:
                lines.append("cleans up")
                await store.put(b"k", b"cleaned")

        world.node("a").run(work())
        await asyncio.sleep(2.5)
        world.node("a").kill()
        await asyncio.sleep(10)
        return list(lines), world.store.revision

    assert simulate(1, scenario).value == (["works"] * 3, 1)


def test_what_a_killed_process_had_sent_still_arrives() -> None:
    async def scenario(world: World) -> bytes:
        world.latency = lambda: 1.0
        world.node("a").run(world.node("a").store().put(b"k", b"sent"))
        await asyncio.sleep(0.5)
        world.node("a").kill()
        await asyncio.sleep(10)
        found = await world.node("b").store().get(b"k")
        assert found is not None
        return found.value

    assert simulate(1, scenario).value == b"sent"


def test_a_process_starts_anew_after_its_death() -> None:
    async def scenario(world: World) -> list[float]:
        started: list[float] = []

        async def work() -> None:
            started.append(world.time)
            await asyncio.sleep(100)

        node = world.node("a")
        node.run(work())
        await asyncio.sleep(1)
        node.kill()
        node.run(work())
        await asyncio.sleep(1)
        return started

    assert simulate(1, scenario).value == pytest.approx([0, 1])


def ticks(world: World, name: str) -> list[tuple[float, float]]:
    """A node that looks at its clock once a second: when it looked, and what it thought how long it had run."""
    node = world.node(name)
    seen: list[tuple[float, float]] = []

    async def tick() -> None:
        begun = node.clock.now()
        while True:
            await asyncio.sleep(1)
            seen.append((world.time, (node.clock.now() - begun).total_seconds()))

    node.run(tick())
    return seen


def test_a_paused_process_does_nothing_while_its_clock_runs_and_is_late_afterwards() -> None:
    async def scenario(world: World) -> list[tuple[float, float]]:
        seen = ticks(world, "a")
        await asyncio.sleep(1.5)
        world.node("a").pause()
        await asyncio.sleep(20)
        world.node("a").resume()
        await asyncio.sleep(1.2)
        return seen

    (first, second, third) = simulate(1, scenario).value
    assert first == pytest.approx((1, 1))
    assert second == pytest.approx((21.5, 21.5))
    assert third == pytest.approx((22.5, 22.5))


def test_a_paused_machine_knows_nothing_of_its_pause() -> None:
    async def scenario(world: World) -> list[tuple[float, float]]:
        seen = ticks(world, "a")
        await asyncio.sleep(1.5)
        world.node("a").pause(clock_stops=True)
        await asyncio.sleep(20)
        world.node("a").resume()
        await asyncio.sleep(1.2)
        return seen

    (first, second) = simulate(1, scenario).value
    assert first == pytest.approx((1, 1))
    assert second == pytest.approx((22, 2))


def test_a_reply_that_arrives_during_a_pause_is_read_after_it() -> None:
    async def scenario(world: World) -> float:
        world.latency = lambda: 1.0
        node = world.node("a")
        answered: list[float] = []

        async def ask() -> None:
            await node.store().get(b"k")
            answered.append(world.time)

        node.run(ask())
        await asyncio.sleep(0.5)
        node.pause()
        await asyncio.sleep(4)
        node.resume()
        await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        return answered[0]

    assert simulate(1, scenario).value == pytest.approx(4.5)


def test_each_node_has_a_clock_of_its_own() -> None:
    async def scenario(world: World) -> None:
        fast, wrong = world.node("fast", rate=1.01), world.node("wrong", wall_error=seconds(-3600))
        begun, wrong_begun = fast.clock.now(), wrong.clock.now()
        assert begun != wrong_begun
        await asyncio.sleep(100)
        assert (fast.clock.now() - begun).total_seconds() == pytest.approx(101)
        assert (fast.clock.wall() - wrong.clock.wall()) == seconds(3600)

    simulate(1, scenario)


def test_timers_of_a_node_run_at_the_speed_of_its_clock() -> None:
    async def scenario(world: World) -> list[tuple[float, float]]:
        world.node("a", rate=2.0)
        seen = ticks(world, "a")
        await asyncio.sleep(1.1)
        return seen

    assert simulate(1, scenario).value == [pytest.approx((0.5, 1)), pytest.approx((1.0, 2))]


def test_a_stepped_wall_clock_leaves_the_boot_clock_alone() -> None:
    async def scenario(world: World) -> None:
        clock = world.node("a").clock
        before, wall = clock.now(), clock.wall()
        clock.step(seconds(-500))
        assert clock.now() == before
        assert clock.wall() - wall == seconds(-500)

    simulate(1, scenario)


def test_leases_run_on_virtual_time() -> None:
    async def scenario(world: World) -> float:
        store = world.node("a").store()
        await store.put(b"k", b"", lease=await store.grant(seconds(15)))
        await world.until(lambda: world.store.keys.get(b"k") is None)
        return world.time

    assert simulate(1, scenario).value == pytest.approx(15, abs=0.1)


def test_what_still_runs_at_the_end_is_ended_and_cannot_write_any_more() -> None:
    fakes: list[FakeStore] = []

    async def scenario(world: World) -> None:
        fakes.append(world.store)

        async def stubborn() -> None:
            store = world.node("a").store()
            try:
                await asyncio.sleep(1_000)
            finally:
                with pytest.raises(StoreAway):
                    await store.put(b"k", b"at last")

        world.node("a").run(stubborn())
        await asyncio.sleep(1)

    simulate(1, scenario)
    assert fakes[0].keys.get(b"k") is None


def test_a_task_that_ignores_its_cancellation_is_named() -> None:
    async def scenario(world: World) -> None:
        async def immortal() -> None:
            while True:
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    world.note("no")

        world.node("a").run(immortal())
        await asyncio.sleep(1)

    with pytest.raises(Stuck, match="immortal"):
        simulate(1, scenario)
