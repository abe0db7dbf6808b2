"""`lakemill resume`: scheduled refreshes of a dynamic table go on."""

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
    """Resume dynamic tables that were suspended, by hand or by their failures.

    Those that waited for them, and for nobody else, go on too.

        lakemill resume by_day
        lakemill resume by_day sales.by_customer
    """
    output = given(context).output(format_)
    with given(context).lake() as lake:
        resume(lake, some_names(names, "resume"), output)


def resume(lake: Lake, names: Sequence[QualifiedName], output: Output, *, missing_ok: bool = False) -> None:
    from lakemill.runtime import halting

    changed = halting.resume(lake, names, missing_ok=missing_ok)
    tell_states(lake, names, changed, output)
