"""The states of dynamic tables after a command that changes them: those that were named, and those that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemill.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.core.names import QualifiedName
    from lakemill.runtime.open import Lake


def tell_states(lake: Lake, named: Sequence[QualifiedName], changed: Sequence[QualifiedName], output: Output) -> None:
    from lakemill.store import definitions

    tables = {table.name: table for table in definitions.list_all(lake.conn)}
    rows = [
        [str(tables[name].name), tables[name].standing[0].value, tables[name].standing[1], name in changed]
        for name in dict.fromkeys([*named, *changed])
        if name in tables
    ]
    output.rows(["table", "state", "reason", "changed"], rows, empty="no dynamic tables")
