"""`lakemill sql`: statements run by DuckDB, through the extension, on the lake; those about dynamic tables by us.

A script is one transaction and so one snapshot: it happens as a whole or not at all. One with statements about dynamic
tables is run statement by statement, since those publish by themselves. Where a statement is wrong, the error names its
line and column in what the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli import failure
from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, Output
from lakemill.cli.script import FileOption, Script, SqlArgument, read_script
from lakemill.errors import BadArgument, BadStatement, LakemillError

if TYPE_CHECKING:
    from lakemill.core.statement import PlainSql, Statement
    from lakemill.lake.duck import Connection
    from lakemill.runtime.open import Lake

_PICTURE = re.compile(r"LINE (\d+): (.*)\n( *)\^")


def command(
    context: typer.Context,
    text: SqlArgument = None,
    file: FileOption = None,
    at: Annotated[
        int | None, typer.Option(metavar="SNAPSHOT", help="Read the lake as it was at this snapshot.")
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Commit each statement by itself instead of all as one snapshot.")
    ] = False,
    format_: FormatOption = None,
) -> None:
    """Run SQL on the lake with DuckDB: queries, DDL and DML.

    Several statements are one transaction, and one snapshot: all of them happen, or none. A script with BEGIN and
    COMMIT of its own is run as it is.

        lakemill sql "CREATE TABLE t (id INTEGER, name VARCHAR)"
        lakemill sql "INSERT INTO t VALUES (1, 'one'); INSERT INTO t VALUES (2, 'two')"
        lakemill sql "SELECT * FROM t" --format json
        lakemill sql --at 1 "SELECT count(*) FROM t"
        lakemill sql -f report.sql

    In JSON, one statement gives a list of rows, and a script of several gives a list of such lists, one for each
    statement that answers. Times, dates and intervals are printed as DuckDB prints them.

    It also takes statements about dynamic tables: CREATE, ALTER, DROP, DESCRIBE DYNAMIC TABLE, SHOW DYNAMIC TABLES and
    EXPLAIN REFRESH. They can't be part of a transaction, so a script with one is run statement by statement.

        lakemill sql "ALTER DYNAMIC TABLE by_day REFRESH"
        lakemill sql "SHOW DYNAMIC TABLES"
    """
    script = read_script(text, file, "sql")
    output = given(context).output(format_)
    ours = _with_ours(script)
    if ours is not None and at is not None:
        raise BadArgument("statements about dynamic tables have no --at", place="--at", remedy="leave --at out")
    with given(context).lake() as lake:
        _refuse_drops(lake, script)
        if ours is not None:
            with output.several() if len(ours) > 1 else nullcontext():
                _run_each(lake, ours, script, output)
            return
        if at is None:
            _run(lake.duck, script, output, each=each)
            return
        from lakemill.lake import duck

        lake.snapshot(at)  # refuses one that is not there, and says why
        with duck.connect(lake.settings, lake.dsn, at=at) as past:
            # stock DuckDB can answer wrongly about the past with it
            past.execute("SET disabled_optimizers = 'statistics_propagation'")
            _run(past, script, output, each=each)


# ---------------------------------------------------------------- with statements about dynamic tables
def _with_ours(script: Script) -> list[Statement] | None:
    """The script's statements; None where DuckDB gets it as it is, because none is ours."""
    from lakemill.core.ddl import may_be_ours, parse_script
    from lakemill.core.statement import PlainSql

    if not may_be_ours(script.text):
        return None
    found = list(parse_script(script.text, script.name))
    return None if all(isinstance(statement, PlainSql) for statement in found) else found


def _refuse_drops(lake: Lake, script: Script) -> None:
    from lakemill.core.ddl import may_drop

    if may_drop(script.text):
        from lakemill.runtime.statements import refuse_drops

        refuse_drops(lake, script.text, script.name)


def _run_each(lake: Lake, statements: list[Statement], script: Script, output: Output) -> None:
    from lakemill.cli.statements import carry_out
    from lakemill.core.statement import PlainSql

    lake.duck.execute("SET python_enable_replacements = false")
    lake.duck.execute("SET arrow_lossless_conversion = true")
    kinds = [_kind(lake.duck, script, one) if isinstance(one, PlainSql) else "" for one in statements]
    if "TRANSACTION" in kinds:
        raise BadStatement(
            "a script with statements about dynamic tables can't have transactions of its own",
            remedy="leave BEGIN and COMMIT out, or make two scripts",
            place=statements[kinds.index("TRANSACTION")].at.place(script.name),
        )
    for number, (statement, kind) in enumerate(zip(statements, kinds, strict=True)):
        if isinstance(statement, PlainSql):
            with _placed(script, statement.at.offset, _done_before(number, own=False)):
                lake.duck.execute(statement.text)
                _show(output, kind, _columns(lake.duck), _rows(lake.duck))
            continue
        try:
            carry_out(lake, statement, output, script.name)
        except LakemillError as error:
            if number:
                _with_remedy(error, _done_before(number, own=False))
            raise


def _kind(duck: Connection, script: Script, statement: PlainSql) -> str:
    """What DuckDB says that it is; so that a mistake is found before anything is done."""
    with _placed(script, statement.at.offset):
        return str(duck.extract_statements(statement.text)[0].type.name)


# ---------------------------------------------------------------- all of it DuckDB's
def _run(duck: Connection, script: Script, output: Output, *, each: bool) -> None:
    duck.execute("SET python_enable_replacements = false")  # a table `output` is no variable of this program
    duck.execute("SET arrow_lossless_conversion = true")
    statements = list(_statements(duck, script))
    if not statements:
        raise BadArgument("there is no statement to run", remedy="see `lakemill sql --help`")
    theirs = [kind for _, _, kind, added in statements if not (added and kind in ("TRANSACTION", "CREATE"))]
    with output.several() if len(theirs) > 1 else nullcontext():
        _run_all(duck, script, statements, output, each=each)


def _run_all(
    duck: Connection, script: Script, statements: list[tuple[int, Any, str, bool]], output: Output, *, each: bool
) -> None:
    own = any(kind == "TRANSACTION" and not added for _, _, kind, added in statements)
    as_one = len(statements) > 1 and not each and not own
    shown = []
    if as_one:
        duck.execute("BEGIN")
    for number, (offset, statement, kind, added) in enumerate(statements):
        if as_one and kind == "TRANSACTION":
            continue  # DuckDB puts some PIVOTs into a transaction; ours is around it
        with _placed(script, offset, "" if as_one else _done_before(number, own)):
            duck.execute(statement)
            if added and kind == "CREATE":
                continue
            if as_one:
                shown.append((kind, *_fetched(duck)))  # nobody sees a result of what may yet be undone
            else:
                _show(output, kind, _columns(duck), _rows(duck))
    if as_one:
        with _placed(script, 0):
            duck.execute("COMMIT")
        for kind, columns, rows in shown:
            _show(output, kind, columns, iter(rows))
    if own and _undone(duck):
        raise BadStatement(
            "the script ends inside a transaction, and what it did there is undone", remedy="end it with COMMIT"
        )


def _undone(duck: Connection) -> bool:
    """End a transaction that is still open; whether there was one."""
    from lakemill.lake.duck import DuckError

    try:
        duck.execute("ROLLBACK")
    except DuckError:
        return False
    return True


def _statements(duck: Connection, script: Script) -> Iterator[tuple[int, Any, str, bool]]:
    """Where each begins, the statement, its kind, and whether DuckDB added it: it makes several of a PIVOT.

    Their texts are not the user's, so that such a script is run as it was parsed, at the price of places in errors.
    """
    with _placed(script, 0):
        found = duck.extract_statements(script.text)
    position = 0
    parsed = any(not statement.query for statement in found)
    for statement in found:
        query = statement.query.strip()
        offset = max(script.text.find(query, position), position)
        position = offset + len(query)
        yield offset, statement if parsed else query, statement.type.name, not query


class _placed:  # noqa: N801 - reads as a verb
    """Raise DuckDB's errors as ours, with the place in the script."""

    def __init__(self, script: Script, offset: int, done: str = "") -> None:
        self._script, self._offset, self._done = script, offset, done

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from lakemill.lake import duck

        if not isinstance(error, duck.DuckError):
            return
        ours = duck.explain(error)
        picture = _PICTURE.search(str(error))
        if picture is not None:
            ours = _with_place(ours, self._script, self._offset, picture)
        raise _with_remedy(ours, self._done) from error


def _with_place(error: LakemillError, script: Script, offset: int, picture: re.Match[str]) -> LakemillError:
    number, shown, caret = int(picture[1]), picture[2], len(picture[3]) - len(f"LINE {picture[1]}: ")
    lines = script.text[offset:].split("\n")
    whole = lines[number - 1] if number <= len(lines) else ""
    if shown.startswith("..."):  # DuckDB shows a window of a long line
        caret += whole.find(shown.removeprefix("...").removesuffix("...")) - 3
    message = re.sub(r";? *(LINE \d+|Candidate functions):.*$", "", error.message)
    return type(error)(message, remedy=error.remedy, place=script.place(offset, number, caret + 1))


def _with_remedy(error: LakemillError, done: str) -> LakemillError:
    return failure.cured(error, done or "nothing was changed", "correct the statement")


def _done_before(number: int, own: bool) -> str:
    if own:
        return "what the script had not committed is undone"
    return f"the {number} before it {'is' if number == 1 else 'are'} committed" if number else ""


def _columns(duck: Connection) -> list[str]:
    return [column[0] for column in duck.description or []]


def _rows(duck: Connection) -> Iterator[Sequence[Any]]:
    from lakemill.lake.spelling import spelled

    return spelled(duck)


def _fetched(duck: Connection) -> tuple[list[str], list[Sequence[Any]]]:
    return _columns(duck), list(_rows(duck)) if duck.description else []


def _show(output: Output, kind: str, columns: list[str], rows: Iterator[Sequence[Any]]) -> None:
    if not columns:
        return
    if columns == ["Count"] and kind != "SELECT" and output.format is Format.TABLE:
        count = next(iter(rows), (0,))[0]
        if kind in _DONE or count:
            output.text(f"{count} row{'' if count == 1 else 's'} {_DONE.get(kind, 'written')}")
        return
    if columns == ["Success"] and kind != "SELECT" and output.format is Format.TABLE:
        return
    output.rows(columns, rows, empty="no rows")


_DONE = {"INSERT": "inserted", "UPDATE": "updated", "DELETE": "deleted", "MERGE_INTO": "merged"}
