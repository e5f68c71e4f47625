"""An event loop on which time is a number and the order of things comes from a seed.

When nothing is ready, time jumps to the next timer. Among callbacks that are ready together the order is drawn from
the seed, except that plain callbacks of one node keep theirs, as asyncio promises; steps of tasks may come in any
order. Nothing waits for the real world: there are no sockets, threads or signals here, and asking for one fails. A
loop with nothing left to do while somebody waits is a deadlock, and says who waits.

Every callback belongs to the life of the node that made it (see `LIFE`): a frozen life's callbacks are kept until it
thaws, a dead life's never run, and each life reads its own clock as `loop.time()`.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import random
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
STEPS_WITHOUT_TIME = 200_000


class Life(Protocol):
    """One run of a simulated process, as the loop sees it."""

    number: int
    name: str
    frozen: bool
    dead: bool

    def local(self, world: float) -> float:
        """This process's clock when the world's shows `world`."""
        ...

    def world(self, local: float) -> float:
        """When, in the world's time, this process's clock shows `local`."""
        ...


LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("LIFE", default=None)
"""Whose code is running. Empty for the world itself: the scenario, the network, the store."""


class _Made(NamedTuple):
    """Which task of the simulation it is, counted from its start, and who made it."""

    serial: int
    by: str


class Stuck(Exception):
    """The simulation cannot go on: a deadlock, a loop in which time stands still, or no end in sight."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs everything of one simulation. `observe` is told every step: when, whose, what."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, seed: random.Random, observe: Callable[[float, str, str], None], limit: float) -> None:
        super().__init__()
        self.world_time = 0.0
        self._random = seed
        self._observe = observe
        self._limit = limit
        self._patience: float = STEPS_WITHOUT_TIME
        self._made = 0
        self._idle_steps = 0
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], _Made] = weakref.WeakKeyDictionary()
        self._kept: list[asyncio.Handle] = []

    def time(self) -> float:
        life = LIFE.get()
        return self.world_time if life is None else life.local(self.world_time)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        life = LIFE.get() if context is None else context.get(LIFE)
        return super().call_at(when if life is None else life.world(when), callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        self._made += 1
        named = name or f"{getattr(coro, '__qualname__', 'task')}#{self._made}"
        task = super().create_task(coro, name=named, context=context, **options)
        life = LIFE.get() if context is None else context.get(LIFE)
        self._tasks[task] = _Made(self._made, life.name if life else "the world")
        return task

    def lift_limits(self) -> None:
        """From now on it may take as long as it takes."""
        self._limit = self._patience = math.inf

    def thaw(self) -> None:
        """Puts back what was kept for lives that are neither frozen nor dead any more."""
        kept, self._kept = self._kept, []
        for handle in kept:
            life = _life(handle)
            assert life is not None, "only what belongs to a life is ever kept"
            if life.frozen or life.dead:
                self._kept.append(handle)
            else:
                self._ready.append(handle)

    def reschedule(self, life: Life, clock_stood_for: float) -> None:
        """A life's clock stood still for a while: its timers come that much later."""
        late = [handle for handle in self._kept if _life(handle) is life and isinstance(handle, asyncio.TimerHandle)]
        self._kept = [handle for handle in self._kept if handle not in late]
        for timer in (*self._scheduled, *late):
            if _life(timer) is life:
                timer._when += clock_stood_for  # type: ignore[attr-defined]  # a handle cannot be moved otherwise
        self._scheduled.extend(late)
        heapq.heapify(self._scheduled)

    def waiting(self) -> Iterator[str]:
        """Every task that is not done, by name, with what it stands at."""
        for task in sorted(asyncio.all_tasks(self), key=self._made_as):
            stack = task.get_stack(limit=1)
            where = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else "not begun"
            yield f"{task.get_name()} of {self._made_as(task).by}, at {where}"

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError(f"a simulated node has no threads: {func!r} cannot run in one")

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            self._jump()
        for handle in self._in_drawn_order(self._batch()):
            if handle.cancelled():
                continue
            life = _life(handle)
            if life is not None and (life.frozen or life.dead):
                self._kept.append(handle)  # an earlier callback of this batch stopped it
                continue
            self._observe(self.world_time, life.name if life else "world", _what(handle))
            handle._run()

    def _jump(self) -> None:
        """Moves time to the next timer, and everything due then into the ready queue."""
        before = self.world_time
        while self._scheduled and not self._ready:
            self.world_time = max(self.world_time, self._scheduled[0].when())
            while self._scheduled and self._scheduled[0].when() <= self.world_time:
                timer = heapq.heappop(self._scheduled)
                if not timer.cancelled():
                    self._keep_or_queue(timer)
        if self.world_time > self._limit:
            self._stuck(f"no end after {self._limit:g} s of virtual time")
        if not self._ready:
            self._stuck("deadlock: nothing is scheduled, and these wait")
        if self.world_time > before:
            self._idle_steps = 0

    def _batch(self) -> list[asyncio.Handle]:
        self._idle_steps += len(self._ready)
        if self._idle_steps > self._patience:
            self._stuck(f"time stands still: {self._patience} steps at {self.world_time:g} s")
        batch = [handle for handle in self._ready if not handle.cancelled()]
        self._ready.clear()
        return batch

    def _keep_or_queue(self, handle: asyncio.Handle) -> None:
        life = _life(handle)
        held = life is not None and (life.frozen or life.dead)
        (self._kept if held else self._ready).append(handle)

    def _in_drawn_order(self, batch: list[asyncio.Handle]) -> Iterator[asyncio.Handle]:
        """Sorted before it is drawn: the order in which a batch came about may depend on addresses in memory."""
        if len(batch) == 1:
            return iter(batch)
        lanes: dict[tuple[int, int], deque[asyncio.Handle]] = {}
        draws = []
        for handle in batch:
            life, task = _life(handle), _task(handle)
            lane = (life.number if life else 0, self._made_as(task).serial if task else 0)
            lanes.setdefault(lane, deque()).append(handle)
            draws.append(lane)
        draws.sort()
        self._random.shuffle(draws)
        return (lanes[lane].popleft() for lane in draws)

    def _made_as(self, task: asyncio.Task[Any]) -> _Made:
        return self._tasks.get(task, _Made(0, "nobody"))

    def _stuck(self, why: str) -> NoReturn:
        raise Stuck("\n  ".join([why, *self.waiting()]))

    def _write_to_self(self) -> None:
        """Wakes a real loop out of its wait; this one never waits."""

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""


def never_before(world: float, local: float, clock: Callable[[float], float]) -> float:
    """The first instant from `world` on at which `clock` shows `local`: what a rounded division may miss by a hair."""
    while clock(world) < local:
        world = math.nextafter(world, math.inf)
    return world


def _life(handle: asyncio.Handle) -> Life | None:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]  # asyncio keeps it to itself
    return context.get(LIFE)


def _task(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # asyncio keeps it to itself
    return owner if isinstance(owner, asyncio.Task) else None


def _what(handle: asyncio.Handle) -> str:
    task = _task(handle)
    if task is not None:
        return task.get_name()
    callback = handle._callback  # type: ignore[attr-defined]  # asyncio keeps it to itself
    return getattr(callback, "__qualname__", type(callback).__name__)
