"""Stock histories, written in processes of their own: an INTERNAL error of the extension may abort its process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tests.fuzz.history import History, write_history

_SPAWN = multiprocessing.get_context("spawn")


def generate(seeds: Sequence[int], server: str, root: Path, jobs: int) -> Iterator[tuple[int, History | str]]:
    """Histories in order of their seeds, written ahead of their check; text where one could not be written."""
    waiting = list(seeds)
    while waiting:
        with ProcessPoolExecutor(jobs, _SPAWN, max_tasks_per_child=50) as pool:
            futures: list[tuple[int, Future[History]]] = [
                (seed, pool.submit(write_history, seed, server, root)) for seed in waiting[: 8 * jobs]
            ]
            for seed, future in futures:
                try:
                    yield seed, future.result()
                except BrokenProcessPool:
                    yield seed, _alone(seed, server, root)
                except Exception as error:
                    yield seed, f"could not be written: {type(error).__name__}: {error}"
        waiting = waiting[len(futures) :]


def _alone(seed: int, server: str, root: Path) -> History | str:
    """A neighbour may have broken the pool: try once more alone."""
    try:
        with ProcessPoolExecutor(1, _SPAWN) as pool:
            return pool.submit(write_history, seed, server, root).result()
    except BrokenProcessPool:
        return "aborted"
