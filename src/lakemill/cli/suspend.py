"""`lakemill suspend`: no more scheduled refreshes of a dynamic table, nor of those that read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from lakemill.cli.options import FormatOption, NamesArgument, given, some_names
from lakemill.cli.output import Output
from lakemill.cli.states import tell_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakemill.core.names import QualifiedName
    from lakemill.runtime.open import Lake


def command(context: typer.Context, names: NamesArgument = None, format_: FormatOption = None) -> None:
    """Suspend dynamic tables: they stay as they are.

    Those that read them wait as UPSTREAM_SUSPENDED. `lakemill refresh` still works, and leaves them suspended.

        lakemill suspend by_day
        lakemill suspend by_day sales.by_customer
    """
    output = given(context).output(format_)
    with given(context).lake() as lake:
        suspend(lake, some_names(names, "suspend"), output)


def suspend(lake: Lake, names: Sequence[QualifiedName], output: Output, *, missing_ok: bool = False) -> None:
    from lakemill.runtime import halting

    changed = halting.suspend(lake, names, missing_ok=missing_ok)
    tell_states(lake, names, changed, output)
