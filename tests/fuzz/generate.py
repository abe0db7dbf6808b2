"""Stock histories, written in processes of their own: an INTERNAL error of the extension may abort its process."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tests.fuzz.course import write_history
from tests.fuzz.history import History

_SPAWN = multiprocessing.get_context("spawn")
AHEAD = 6


def generate(seeds: Sequence[int], server: str, root: Path, jobs: int) -> Iterator[tuple[int, History | str]]:
    """Histories in order of their seeds, written ahead of their check; text where one could not be written."""
    waiting = deque(seeds)
    while waiting:
        written: deque[tuple[int, Future[History]]] = deque()
        with ProcessPoolExecutor(jobs, _SPAWN, max_tasks_per_child=100) as pool:
            try:
                while waiting or written:
                    while waiting and len(written) < AHEAD * jobs:
                        written.append((waiting[0], pool.submit(write_history, waiting[0], server, root)))
                        waiting.popleft()
                    seed, future = written[0]
                    try:
                        yield seed, future.result()
                    except BrokenProcessPool:
                        raise
                    except Exception as error:
                        yield seed, could_not(error)
                    written.popleft()
            except BrokenProcessPool:
                waiting.extendleft(seed for seed, _ in reversed(written))
        if written:  # a neighbour may have broken the pool: try the first once more, alone
            yield waiting[0], _alone(waiting[0], server, root)
            waiting.popleft()


def _alone(seed: int, server: str, root: Path) -> History | str:
    try:
        with ProcessPoolExecutor(1, _SPAWN) as pool:
            return pool.submit(write_history, seed, server, root).result()
    except BrokenProcessPool:
        return "aborted"
    except Exception as error:
        return could_not(error)


def could_not(error: Exception) -> str:
    return f"could not be written: {type(error).__name__}: {error}"
