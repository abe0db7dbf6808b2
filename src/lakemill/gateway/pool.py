"""Turns and ends: how many queries run at once, who waits for how long, and when one must stop.

Executors are forked ahead, so that a turn finds one that is ready. A turn ends in one of four ways (its last row, an
error, a cancel, its deadline) and whichever comes first wins: the executor is told to stop, killed a little later if it
does not, and another is forked in its place. One thread watches all deadlines, one forks. What runs is not known here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lakemill.errors import LakemillError, QueriesQueued, QueryTimedOut, Stopped
from lakemill.gateway.process import Executor, Nursery

GRACE = 1.0
"""Seconds between the word and the signal."""


@dataclass(slots=True, eq=False)
class Turn:
    """A query's right to run, and its executor."""

    id: str
    executor: Executor
    began: float
    queued: float
    ends: float
    """When it is told to stop, or, once told, when it is killed."""
    told: bool = False
    over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    pinned: tuple[int, ...] = ()
    """Snapshots that are kept for it."""


class Pool:
    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        executors: int,
        queue: int,
        patience: float,
        let_go: Callable[[tuple[int, ...]], None],
    ) -> None:
        self._executors, self._queue, self._patience, self._let_go = executors, queue, patience, let_go
        self._nursery = Nursery(config, folder)
        self._free = threading.Condition()
        self._spare: deque[Executor] = deque()
        self._turns: dict[str, Turn] = {}
        self._waiting = self._taken = 0
        self._closed = False
        self._watched = threading.Condition()
        self._watcher = threading.Thread(target=self._watch, name="query-deadlines", daemon=True)
        self._watcher.start()
        self._owed: SimpleQueue[bool] = SimpleQueue()
        self._midwife = threading.Thread(target=self._replace, name="query-executors", daemon=True)
        self._midwife.start()

    def warm(self) -> None:
        """Fork the executors that will be needed first."""
        for _ in range(self._executors - len(self._spare)):
            self._spare.append(self._nursery.fork())

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._turns)

    def turn(self, id_: str, timeout: float) -> Turn:
        """Wait for a turn; refused when too many wait, or when it takes too long."""
        began = time.monotonic()
        with self._free:
            if self._taken >= self._executors:
                if self._waiting >= self._queue:
                    raise QueriesQueued(f"{self._waiting} queries wait already")
                self._waiting += 1
                try:
                    if not self._free.wait_for(lambda: self._closed or self._taken < self._executors, self._patience):
                        raise QueriesQueued(f"no turn came within {self._patience:g} s")
                finally:
                    self._waiting -= 1
            if self._closed:
                raise Stopped("the gateway is closed")
            self._taken += 1
        try:
            executor = self._ready()
        except BaseException:
            self._give_back()
            raise
        now = time.monotonic()
        turn = Turn(id_, executor, now, now - began, now + timeout)
        with self._watched:
            self._turns[turn.id] = turn
            self._watched.notify()
        return turn

    def _ready(self) -> Executor:
        try:
            return self._spare.popleft()
        except IndexError:
            return self._nursery.fork()

    def hold(self, turn: Turn, pinned: tuple[int, ...]) -> None:
        """These snapshots are let go when the turn ends; at once where it has ended."""
        with turn.lock:
            over = turn.over
            if not over:
                turn.pinned = pinned
        if over:
            self._let_go(pinned)
            raise turn.executor.lost()

    def widen(self, turn: Turn, roots: frozenset[str]) -> None:
        """Give the turn an executor that can read from these folders, too; those to come can as well.

        Few lakes have files outside of their data path, so executors are not born with a right to read elsewhere; and a
        new lake has no data path yet.
        """
        if roots <= turn.executor.roots:
            return
        self._nursery.roots |= roots
        born, left = self._nursery.fork(), turn.executor
        with turn.lock:
            turn.executor, over = born, turn.over
        left.kill()
        left.close()
        if over or left.why:
            born.kill()
            born.close()
            raise left.lost()

    def cancel(self, id_: str, why: LakemillError) -> bool:
        """False when no such query runs."""
        turn = self._turns.get(id_)
        if turn is None:
            return False
        self._tell(turn, why)
        return True

    def end(self, turn: Turn) -> None:
        """The turn is over, however it ended; a second time does nothing."""
        with turn.lock:
            if turn.over:
                return
            turn.over = True
        with self._watched:
            self._turns.pop(turn.id, None)
        self._let_go(turn.pinned)
        turn.executor.kill()
        turn.executor.close()
        self._give_back()
        self._owed.put(True)

    def close(self) -> None:
        """Cancel what runs and end every process."""
        with self._free:
            self._closed = True
            self._free.notify_all()
        for turn in list(self._turns.values()):
            turn.executor.stop(Stopped("the gateway is closed"))
            self.end(turn)
        with self._watched:
            self._watched.notify()
        self._watcher.join()
        self._owed.put(False)
        self._midwife.join()
        while self._spare:
            self._spare.popleft().close()
        self._nursery.close()

    def _give_back(self) -> None:
        with self._free:
            self._taken -= 1
            self._free.notify()

    def _replace(self) -> None:
        """Another executor for each that has ended; whoever asked for it does not wait."""
        while self._owed.get():
            if not self._closed and len(self._spare) < self._executors:
                with suppress(OSError):  # the next turn tries it itself, and tells
                    self._spare.append(self._nursery.fork())

    # ------------------------------------------------------------ deadlines
    def _tell(self, turn: Turn, why: LakemillError) -> None:
        with self._watched:
            if turn.told:
                return
            turn.told, turn.ends = True, time.monotonic() + GRACE
            self._watched.notify()
        turn.executor.stop(why)

    def _watch(self) -> None:
        while not self._closed:
            with self._watched:
                now = time.monotonic()
                due = [turn for turn in self._turns.values() if turn.ends <= now]
                if not due:
                    ends = min((turn.ends for turn in self._turns.values()), default=now + 3600)
                    self._watched.wait(max(ends - now, 0.001))
                    continue
            for turn in due:
                if turn.told:
                    # whoever reads its answer learns why, and ends the turn; if nobody reads, it ends here
                    turn.executor.kill()
                    self.end(turn)
                else:
                    self._tell(turn, QueryTimedOut(f"it took longer than {turn.ends - turn.began:.3g} s"))
