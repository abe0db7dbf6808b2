"""A batch without Spark: what ``runtime/materialise`` does, but for the rows, whose file is written here."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakemill.core.batch import Limits
from lakemill.core.commit import AddFiles
from lakemill.lake.footer import new_files
from lakemill.lake.staging import Staged, StagedFile
from lakemill.runtime import materialise, write
from lakemill.runtime.claiming import holder
from lakemill.runtime.open import Lake


def pass_by_hand(lake: Lake, name: str, trace: Callable[[str], None] = lambda _: None) -> int | None:
    """The next batch of a table of one INTEGER column k; its snapshot."""
    table = lake.table(name)
    held = lake.consumer.claim(table.describe().id, holder(), lake.settings.ingest.claim_expiry)
    trace("claimed")
    batch = None if held is None else lake.consumer.read(held, Limits())
    if held is None or batch is None:
        return None
    trace("read")
    bodies = lake.conn.execute(
        "SELECT body FROM lakemill.bus WHERE table_id = %s AND token > %s AND token <= %s ORDER BY token",
        (held.table_id, held.cursor, batch.upto),
    ).fetchall()
    values = [json.loads(line)["p"]["k"] for (body,) in bodies for line in body.split("\n")]
    lake.publisher._trace = trace
    with write.writing(table) as attempt:
        target = attempt.state.target
        relative = f"lakemill-{uuid.uuid4()}.parquet"
        Path(target.path).mkdir(parents=True, exist_ok=True)
        field = pa.field("k", pa.int32(), metadata={"PARQUET:field_id": str(target.columns[0].id)})
        pq.write_table(pa.table([pa.array(values, pa.int32())], schema=pa.schema([field])), target.path + relative)
        staged = Staged((StagedFile(target.path + relative, relative),), len(values))
        updates = [AddFiles(held.table_id, new_files(lake.duck, staged, target))]
        trace("filed")
        done = materialise._publish(lake, attempt, held, batch, updates, (len(values), 0, 0), [])
        return done.snapshot_id
