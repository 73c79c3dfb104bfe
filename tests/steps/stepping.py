"""A clock and a scheduler of tasks: exactly one runs at any time, and time passes only while all of them wait.

Each task has a thread of its own, because product code sleeps deep in its calls; the threads hand one baton on. Which
of the tasks that are due goes first is decided by the seed. Knows nothing about runners or buses.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Callable, Iterable

START = dt.datetime(2026, 11, 20, 10, 0, tzinfo=dt.UTC)


class Stopped(BaseException):
    """A task is unwound because its scheduler was closed."""


class SteppedTask:
    """A task, when it goes on at the latest, and what it waits for."""

    def __init__(self, owner: Stepping, work: Callable[[], None], name: str) -> None:
        self.owner, self.work, self.name = owner, work, name
        self.due_s = owner.steady_s()
        self.ready: Callable[[], bool] = lambda: False
        self.ended = self.killed = False
        self.error: BaseException | None = None
        self.baton = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def join(self) -> None:
        self.owner.pause(float("inf"), lambda: self.ended)

    def _run(self) -> None:
        self.baton.acquire()
        try:
            if not (self.owner.closed or self.killed):
                self.work()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 (handed to who steps)
            self.error = error
        self.ended = True
        self.owner.baton.release()


class SteppedProcess:
    """The tasks of one process: `Tasks` of a clock that end together when it is killed."""

    def __init__(self, owner: Stepping) -> None:
        self._owner = owner
        self._tasks: list[SteppedTask] = []
        self.glance_s = owner.glance_s

    def start(self, work: Callable[[], None], name: str) -> SteppedTask:
        task = self._owner.start(work, name)
        self._tasks.append(task)
        return task

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return self._owner.wait(event, timeout_s)

    def kill(self) -> None:
        """End them where they are."""
        self._owner.kill(self._tasks)


class Stepping:
    """A virtual clock whose sleepers are stepped; implements `Clock` and `Tasks`.

    A task that looks out for something looks every second: each look is a change of threads.

    Args:
        seed: decides the order of tasks that are due at the same moment.
    """

    glance_s = 1.0

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._now_s = 0.0
        self._tasks: list[SteppedTask] = []
        self._current: SteppedTask | None = None
        self.baton = threading.Semaphore(0)
        self.closed = False

    # Clock

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self._now_s)

    def steady_s(self) -> float:
        return 1000.0 + self._now_s

    def sleep(self, seconds: float) -> None:
        self.pause(self.steady_s() + max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass without stepping anything: a call that took this long."""
        self._now_s += seconds

    def put_to_sleep(self, seconds: float) -> None:
        """Let every task that there is go on no sooner than in so many seconds: their machine is suspended."""
        wakes_s = self.steady_s() + seconds
        for task in self._tasks:
            task.due_s = max(task.due_s, wakes_s)
            task.ready = lambda ready=task.ready: self.steady_s() >= wakes_s and ready()

    # Tasks

    def start(self, work: Callable[[], None], name: str) -> SteppedTask:
        task = SteppedTask(self, work, name)
        self._tasks.append(task)
        return task

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if not event.is_set():
            self.pause(self.steady_s() + max(0.0, timeout_s), event.is_set)
        return event.is_set()

    def kill(self, tasks: Iterable[SteppedTask]) -> None:
        """Let none of these go on; a task that kills itself unwinds from here.

        Unlike a killed process they run their `finally` blocks: those may reach nothing that outlives it.
        """
        for task in tasks:
            task.killed, task.due_s = True, self.steady_s()
        if self._current is not None and self._current.killed:
            raise Stopped

    def pause(self, due_s: float, ready: Callable[[], bool] = lambda: False) -> None:
        """Let others go on until a moment, or until something is so; outside of a task it steps them itself."""
        task = self._current
        if task is None:
            self.run_until(ready, due_s)
            return
        if task.killed:
            raise Stopped
        task.due_s, task.ready = due_s, ready
        self._current = None
        self.baton.release()
        task.baton.acquire()
        if self.closed or task.killed:
            raise Stopped

    # Whoever steps

    def run_until(self, done: Callable[[], bool], due_s: float = float("inf")) -> bool:
        """Step tasks until something is so, or a moment of the steady clock; return whether it is so.

        Raises:
            BaseException: what a task ended with.
        """
        while not done():
            task = self._next(due_s)
            if task is None:
                if due_s < float("inf"):
                    self._now_s = max(self._now_s, due_s - 1000.0)
                return done()
            self._step(task)
        return True

    def run_for(self, seconds: float) -> None:
        """Step tasks for so long."""
        self.run_until(lambda: False, self.steady_s() + seconds)

    def close(self) -> None:
        """Unwind every task that has not ended."""
        self.closed = True
        for task in self._tasks:
            if not task.ended:
                task.baton.release()
                task.thread.join(10)

    def _next(self, due_s: float) -> SteppedTask | None:
        """Return the task that goes on next, the clock moved there; None when none is due by then."""
        self._tasks = [task for task in self._tasks if not task.ended]
        ready = [task for task in self._tasks if task.due_s <= self.steady_s() or task.ready()]
        if not ready:
            soonest = min((task.due_s for task in self._tasks), default=float("inf"))
            if soonest > due_s or soonest == float("inf"):
                return None
            self._now_s = soonest - 1000.0
            ready = [task for task in self._tasks if task.due_s <= soonest]
        return self._random.choice(ready)

    def _step(self, task: SteppedTask) -> None:
        self._current = task
        task.baton.release()
        self.baton.acquire()
        self._current = None
        if task.error is not None:
            raise task.error
