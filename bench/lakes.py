"""A lake for a bench: new, on a local disk, with an embedded PostgreSQL of its own; gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lakemill
from lakemill.lake import duck
from lakemill.runtime.open import Lake
from lakemill.settings import Settings
from lakemill.store.embedded import EmbeddedPostgres


@contextmanager
def new_lake(flags: dict[str, object] | None = None) -> Iterator[Lake]:
    root = Path(tempfile.mkdtemp(prefix="lakemill-bench-"))
    server = EmbeddedPostgres(root / ".lakemill" / "postgres")
    try:
        settings = Settings.load(root, {"spark.master": "local[2]", "spark.profile": "batch", **(flags or {})})
        with duck.connect(settings, server.start(), create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        with lakemill.open(settings) as lake:
            yield lake
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)
