"""A lake of its own with processes that work on it, for chaos: they are started, killed and ended; and the command.

What is harmed, and who judges it, is the business of ``tests/service/chaos`` and ``tests/ingest/chaos``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from lakemill.lake import duck
from lakemill.settings import Settings
from lakemill.store.embedded import EmbeddedPostgres

ROOT = Path(__file__).parents[1]


class Stage:
    def __init__(self, root: Path, toml: str, *, fast: bool = False) -> None:
        """``toml``: the settings; ``fast``: PostgreSQL may lose its last commits when it is killed."""
        self.root = root
        (root / "lakemill.toml").write_text(toml)
        self.server = EmbeddedPostgres(root / ".lakemill" / "postgres", fast=fast)
        self.settings = Settings.load(root)
        with duck.connect(self.settings, self.server.start(), create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.did: Counter[str] = Counter()

    def spawn(self, name: str, words: Sequence[str]) -> None:
        """A Python process, whose log is a file of its name."""
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        env = {**os.environ, "PYTHONPATH": path, "NO_PROXY": "127.0.0.1"}
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen([sys.executable, *words], env=env, stdout=log, stderr=log)

    @property
    def command(self) -> list[str]:
        """The words before those of a command of Lakemill."""
        return ["-m", "lakemill.cli.main", "-C", str(self.root)]

    def logs(self) -> str:
        return "\n".join(f"--- {file.name}\n{file.read_text()[-3000:]}" for file in sorted(self.root.glob("*.log")))

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.server.stop()


S = TypeVar("S", bound=Stage)


def main(name: str, about: str | None, make: Callable[[Path, int], S], run: Callable[[S, int], None]) -> int:
    """``python -m name --kills N --seed S``: what failed stays in its folder."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=about)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lakemill-chaos-"))
    chaos = make(root, given.seed)
    try:
        run(chaos, given.kills)
    except Exception as error:
        traceback.print_exc()
        print(f"FAILED: seed {given.seed}, {dict(chaos.did)}, in {root}: {error}\n{chaos.logs()}")
        return 1
    shutil.rmtree(root, ignore_errors=True)
    return 0
