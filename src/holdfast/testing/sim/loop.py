"""An event loop on virtual time, in an order drawn from a seed.

When nothing is ready, time jumps to the next timer. Among callbacks that are ready together the order is drawn from
the seed, except that plain callbacks of one node keep theirs, as asyncio promises; steps of tasks may come in any
order. Nothing waits for the real world: sockets are those of `network`, a call in a thread takes the time that
`thread_time` draws before and after it, signals come from `send_signal`; without them, asking for one fails. A
loop with nothing left to do while tasks wait is a deadlock, and its error names them.

Every callback belongs to the process that made it (see `CURRENT`): callbacks of a frozen process are suspended until it
thaws, those of a dead one never run, and each process reads its own clock as `loop.time()`.
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
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
STEPS_WITHOUT_TIME = 200_000


class LoopProcess(Protocol):
    """A simulated process, as the loop sees it."""

    number: int
    name: str
    frozen: bool
    dead: bool

    def local(self, world: float) -> float:
        """Return the process's clock at that world time."""
        ...

    def world(self, local: float) -> float:
        """Return the world time at which the process's clock shows `local`."""
        ...


class LoopNetwork(Protocol):
    """The simulated network, as the loop sees it."""

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


CURRENT: contextvars.ContextVar[LoopProcess | None] = contextvars.ContextVar("CURRENT", default=None)
"""The process whose code is running. Empty for the world itself: the scenario, the network, the store."""


class _Origin(NamedTuple):
    """Serial number of a task in the simulation, and the process that made it."""

    serial: int
    by: str


class Stuck(Exception):
    """The simulation cannot continue: a deadlock, a loop that does not advance time, or the time limit."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs one simulation. `observe` is called for every step with its time, process and name."""

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
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], _Origin] = weakref.WeakKeyDictionary()
        self._suspended: list[asyncio.Handle] = []
        self.network: LoopNetwork | None = None
        """What answers `create_connection`."""
        self.thread_time: Callable[[], float] | None = None
        """Draws the seconds between the request of a blocking call and the call, and between the call and its result:
        a process may die with the call made and its result not received."""
        self._signal_handlers: dict[tuple[int, int], tuple[Callable[[], object], contextvars.Context]] = {}

    def time(self) -> float:
        process = CURRENT.get()
        return self.world_time if process is None else process.local(self.world_time)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        process = CURRENT.get() if context is None else context.get(CURRENT)
        return super().call_at(when if process is None else process.world(when), callback, *args, context=context)

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
        process = CURRENT.get() if context is None else context.get(CURRENT)
        self._tasks[task] = _Origin(self._made, process.name if process else "the world")
        return task

    def lift_limits(self) -> None:
        """Drop the limits on time and steps, for the shutdown."""
        self._limit = self._patience = math.inf

    def thaw(self) -> None:
        """Queue the suspended callbacks of processes that are neither frozen nor dead any more."""
        suspended, self._suspended = self._suspended, []
        for handle in suspended:
            process = _process_of(handle)
            assert process is not None, "only what belongs to a process is ever suspended"
            if process.frozen or process.dead:
                self._suspended.append(handle)
            else:
                self._ready.append(handle)

    def reschedule(self, process: LoopProcess, clock_stood_for: float) -> None:
        """Delay the timers of a process whose clock stood still."""
        late = [
            handle
            for handle in self._suspended
            if _process_of(handle) is process and isinstance(handle, asyncio.TimerHandle)
        ]
        self._suspended = [handle for handle in self._suspended if handle not in late]
        for timer in (*self._scheduled, *late):
            if _process_of(timer) is process:
                timer._when += clock_stood_for  # type: ignore[attr-defined]  # a handle cannot be moved otherwise
        self._scheduled.extend(late)
        heapq.heapify(self._scheduled)

    def waiting(self) -> Iterator[str]:
        """Yield every unfinished task by name, with the line where it waits."""
        for task in sorted(asyncio.all_tasks(self), key=self._origin):
            stack = task.get_stack(limit=1)
            where = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else "not begun"
            yield f"{task.get_name()} of {self._origin(task).by}, at {where}"

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if self.network is None:
            raise RuntimeError(f"this simulation has no network: {host}:{port} cannot be reached")
        return await self.network.connect(protocol_factory, host)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        if self.thread_time is None:
            raise RuntimeError(f"this simulation has no threads: {func!r} cannot run in one")
        done: asyncio.Future[T] = self.create_future()
        self.call_later(self.thread_time(), self._call_in_thread, done, partial(func, *args))
        return done

    def _call_in_thread(self, done: asyncio.Future[T], call: Callable[[], T]) -> None:
        assert self.thread_time is not None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the caller gets it
            self.call_later(self.thread_time(), _fail, done, error)
        else:
            self.call_later(self.thread_time(), _settle, done, result)

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        process = CURRENT.get()
        if process is None:
            raise RuntimeError("the world itself gets no signals")
        self._signal_handlers[process.number, sig] = partial(callback, *args), contextvars.copy_context()

    def send_signal(self, process: LoopProcess, sig: int) -> bool:
        """Run the process's handler of that signal; returns False if it has none."""
        found = self._signal_handlers.get((process.number, sig))
        if found is not None:
            self.call_soon(found[0], context=found[1])
        return found is not None

    def set_exception_handler(self, handler: Callable[..., object] | None) -> None:
        """Keep the world's handler: a task of a process that fails unnoticed fails the simulation."""
        if CURRENT.get() is None:
            super().set_exception_handler(handler)

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            self._jump()
        for handle in self._in_drawn_order(self._batch()):
            if handle.cancelled():
                continue
            process = _process_of(handle)
            if process is not None and (process.frozen or process.dead):
                self._suspended.append(handle)  # an earlier callback of this batch stopped it
                continue
            self._observe(self.world_time, process.name if process else "world", _name_of(handle))
            handle._run()

    def _jump(self) -> None:
        """Advance time to the next timer and queue everything that is due then."""
        before = self.world_time
        while self._scheduled and not self._ready:
            self.world_time = max(self.world_time, self._scheduled[0].when())
            while self._scheduled and self._scheduled[0].when() <= self.world_time:
                timer = heapq.heappop(self._scheduled)
                if not timer.cancelled():
                    self._queue_or_suspend(timer)
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

    def _queue_or_suspend(self, handle: asyncio.Handle) -> None:
        process = _process_of(handle)
        held = process is not None and (process.frozen or process.dead)
        (self._suspended if held else self._ready).append(handle)

    def _in_drawn_order(self, batch: list[asyncio.Handle]) -> Iterator[asyncio.Handle]:
        """Shuffle the batch by the seed. It is sorted first: its order may depend on addresses in memory."""
        if len(batch) == 1:
            return iter(batch)
        queues: dict[tuple[int, int], deque[asyncio.Handle]] = {}
        draws = []
        for handle in batch:
            process, task = _process_of(handle), _task_of(handle)
            queue = (process.number if process else 0, self._origin(task).serial if task else 0)
            queues.setdefault(queue, deque()).append(handle)
            draws.append(queue)
        draws.sort()
        self._random.shuffle(draws)
        return (queues[queue].popleft() for queue in draws)

    def _origin(self, task: asyncio.Task[Any]) -> _Origin:
        return self._tasks.get(task, _Origin(0, "unknown"))

    def _stuck(self, why: str) -> NoReturn:
        raise Stuck("\n  ".join([why, *self.waiting()]))

    def _write_to_self(self) -> None:
        """Would wake a waiting loop; this one never waits."""

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""


def _settle(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[T], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def never_before(world: float, local: float, clock: Callable[[float], float]) -> float:
    """Return the first instant from `world` on at which `clock` shows `local`: corrects a rounded division."""
    while clock(world) < local:
        world = math.nextafter(world, math.inf)
    return world


def _process_of(handle: asyncio.Handle) -> LoopProcess | None:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]  # asyncio keeps it to itself
    return context.get(CURRENT)


def _task_of(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # asyncio keeps it to itself
    return owner if isinstance(owner, asyncio.Task) else None


def _name_of(handle: asyncio.Handle) -> str:
    task = _task_of(handle)
    if task is not None:
        return task.get_name()
    callback = handle._callback  # type: ignore[attr-defined]  # asyncio keeps it to itself
    return getattr(callback, "__qualname__", type(callback).__name__)
