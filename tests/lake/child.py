"""A publisher in a process of its own, which dies or stops at a named step: ``python -m tests.lake.child JSON``.

It stages an append and a delete of table t, publishes them with a note of ours in the same transaction, and prints the
snapshot id. At the step it kills or stops itself; before that it prints the step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

from lakemill.core.commit import AddFiles, DeletePositions
from lakemill.lake import rows as layout
from lakemill.settings import PublishSettings, Settings
from tests.conftest import TestLake
from tests.publishing import Desk


def main(root: str, dsn: str, step: str, how: str, publish_id: str, idle: float, temporary: bool) -> None:
    settings = Settings.load(Path(root), {"lake.postgres": dsn, "duck.threads": 1})
    done: set[str] = set()

    def trace(reached: str) -> None:
        if reached == step and reached not in done:
            done.add(reached)
            print(reached, flush=True)
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    if temporary:
        layout.INLINE_ROWS = 0
    desk = Desk(TestLake(settings, dsn, settings.data_path), settings=PublishSettings(idle_timeout=idle), trace=trace)  # type: ignore[arg-type]
    table_id = desk.table().id
    file_id = desk.data_files()[0][0]
    updates = (
        AddFiles(table_id, desk.stage("SELECT range::INTEGER AS id, 'new' AS s FROM range(1000, 1010)")),
        DeletePositions(table_id, desk.stage_deletes({file_id: [0, 1]})),
    )

    def note(cursor: Any, snapshot_id: int) -> None:
        cursor.execute("INSERT INTO lakemill.notes VALUES (%s)", (snapshot_id,))

    published = desk.publish(*updates, more=note, publish_id=uuid.UUID(publish_id))
    print("published", published.snapshot_id, flush=True)
    desk.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
