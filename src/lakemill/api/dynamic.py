"""`/v1/dynamic-tables` and `/v1/graph`: what the commands of the same names do, over HTTP.

What needs Spark is done here where a worker is in the process (`lakemill serve`); elsewhere a refresh is asked of the
workers, and the answer says where to look. What a caller does not see is neither read by its definitions nor named in
its answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Body, Header, Query, Response
from fastapi.responses import PlainTextResponse

from lakemill.api import dynamic_models as models
from lakemill.api.caller import Caller, Who
from lakemill.api.models import Limit, SnapshotId, TableName
from lakemill.api.problems import documented
from lakemill.core import drawing
from lakemill.core.ddl import parse_definition
from lakemill.core.definition import Dialect, Initialize
from lakemill.core.graph import build_graph
from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.position import START
from lakemill.core.references import tables as tables_of
from lakemill.core.refresh import Outcome, State
from lakemill.core.rights import Action
from lakemill.core.select import parse_query
from lakemill.core.statement import Create, Drop, IfExists
from lakemill.errors import (
    Cycle,
    Forbidden,
    HasDependents,
    MalformedBody,
    RefreshFailed,
    UnsupportedMedia,
    UpstreamFailed,
    of_code,
)
from lakemill.runtime import dynamic, facts, halting, show
from lakemill.runtime.asking import ask_for_refresh
from lakemill.runtime.explain import explain_chain
from lakemill.runtime.open import Lake
from lakemill.runtime.refresh import refresh
from lakemill.runtime.statements import placed
from lakemill.runtime.verify import verify
from lakemill.store import definitions, history
from lakemill.store.history import RefreshRecord
from lakemill.telemetry import metrics
from lakemill.telemetry.log import refreshed

router = APIRouter(tags=["dynamic tables"])
HOME = "/v1/dynamic-tables"
SQL = ("application/sql", "text/plain")
Statement = Annotated[
    bytes,
    Body(
        media_type="application/sql",
        examples=[
            "CREATE DYNAMIC TABLE by_day TARGET_LAG = '5 minutes' AS SELECT day, count(*) AS n FROM t GROUP BY day"
        ],
    ),
]


# ---------------------------------------------------------------- looking
@router.get(HOME)
def list_dynamic_tables(
    caller: Who,
    like: Annotated[str | None, Query(max_length=200, description="A pattern for the name, with `%`.")] = None,
) -> list[models.Standing]:
    """How dynamic tables stand: state, lag, last refresh."""
    caller.require(Action.SEE)
    with caller.lake() as lake:
        return [models.Standing(**facts.standing(one)) for one in show.show(lake, like) if caller.sees(one.name)]


@router.get(f"{HOME}/{{table}}", responses=documented(404))
def get_dynamic_table(table: TableName, caller: Who) -> models.Described:
    """Definition, columns, sources, versions, and how it stands."""
    name = _named(caller, Action.SEE, table)
    with caller.lake() as lake:
        found = facts.described(show.describe(lake, name))
    whole = len(found["sources"]) == len(_seen(caller, found["sources"]))
    found |= {
        "definition": found["definition"] if whole else None,
        "query": found["query"] if whole else None,
        "sources": _seen(caller, found["sources"]),
        "consumers": [one for one in found["consumers"] if caller.sees(parse_name(one))],
        "last": found["last"] and _within(caller, found["last"]),
    }
    return models.Described(**found)


@router.get(f"{HOME}/{{table}}/history", responses=documented(404))
def get_history(table: TableName, caller: Who, limit: Limit = 10) -> list[models.RefreshModel]:
    """What its refreshes did, why, and what they cost; the newest first."""
    name = _named(caller, Action.SEE, table)
    with caller.lake() as lake:
        found = history.history(lake.conn, definitions.get(lake.conn, name).id, limit)
    return _refreshes(caller, found)


@router.get(f"{HOME}/{{table}}/explain", responses=documented(404, 409, 410))
def explain_refresh(table: TableName, caller: Who) -> models.ExplainedChain:
    """What its next refresh would do, at what cost, and why. Spark is not asked."""
    name = _named(caller, Action.SEE, table)
    with caller.lake() as lake:
        *first, own = (facts.explained(one) | {"_name": one.name} for one in explain_chain(lake, name))
    told = [_explained(caller, one) for one in first if caller.sees(one["_name"])]
    return models.ExplainedChain(**_explained(caller, own), first=[models.Explained(**one) for one in told])


@router.get(
    "/v1/graph", response_model=dict[str, Any], responses=documented(404) | {200: {"content": {"text/plain": {}}}}
)
def get_graph(
    caller: Who,
    table: Annotated[str | None, Query(min_length=1, max_length=500, description="Only around this one.")] = None,
    as_: Annotated[Literal["json", "mermaid"], Query(alias="as")] = "json",
) -> Any:
    """What reads what."""
    caller.require(Action.SEE)
    with caller.lake() as lake:
        graph = definitions.graph(lake.conn)
        wanted = set(graph.nodes)
        if table is not None:
            own = definitions.get(lake.conn, _named(caller, Action.SEE, table)).name
            wanted = {own, *graph.ancestors(own), *graph.dependents(own)}
    graph = build_graph(
        replace(node, sources=tuple(filter(caller.sees, node.sources)))
        for name, node in graph.nodes.items()
        if name in wanted and caller.sees(name)
    )
    return PlainTextResponse(drawing.draw_mermaid(graph)) if as_ == "mermaid" else drawing.draw_json(graph)


# ---------------------------------------------------------------- defining
@router.post(
    HOME,
    status_code=201,
    responses=documented(404, 409) | {202: {"model": models.Created, "description": "Its load waits for a worker"}},
)
def create_dynamic_table(
    statement: Statement,
    caller: Who,
    response: Response,
    content_type: Annotated[str, Header(include_in_schema=False)] = "",
) -> models.Created:
    """Carry out one `CREATE DYNAMIC TABLE`, sent as `application/sql`.

    It is loaded at once where this process has Spark (201); elsewhere a worker loads it (202).
    """
    if content_type.partition(";")[0].strip().lower() not in SQL:
        raise UnsupportedMedia("a definition is sent as SQL", remedy="send it with Content-Type: application/sql")
    text = _text(statement)
    with caller.audited("dynamic.create", sql=text) as entry:
        caller.require(Action.DEFINE)
        wanted = parse_definition(text)
        name = wanted.definition.name
        entry.tables = [str(name)]
        sources = _sources(caller, wanted)
        caller.require(Action.DEFINE, name)
        caller.require(Action.SEE, *sources)
        with caller.lake() as lake, placed(wanted), _unnamed(caller):
            _require_seen(caller, lake, wanted)
            load = wanted.definition.initialize is Initialize.ON_CREATE
            spark = wanted.definition.dialect is Dialect.SPARK  # which alone knows its columns
            if spark or (load and caller.desk.works):
                with caller.desk.working("a query in Spark's SQL" if spark else "the first load"):
                    done = dynamic.create(lake, wanted)
                _observe(done.records)
            else:
                done = dynamic.create(lake, wanted, load=False)
            anew = done.table.state is State.PENDING_INIT or wanted.if_exists is IfExists.REPLACE
            waits = load and not caller.desk.works and anew
            work = ask_for_refresh(lake, name) if waits else None
            hidden = not all(map(caller.sees, definitions.graph(lake.conn).dependents(done.table.name)))
    response.status_code = 202 if work is not None else 201
    response.headers["location"] = _address(name)
    told = facts.created(done, () if hidden else done.warnings) | {
        "refreshes": _refreshes(caller, done.records),
        "work": work,
    }
    return models.Created(**told)


@router.delete(f"{HOME}/{{table}}", responses=documented(404, 409))
def drop_dynamic_table(table: TableName, caller: Who, cascade: bool = False) -> models.Dropped:
    """Drop it, definition and content; with `cascade` all that read it too."""
    name = parse_name(table)
    with caller.audited("dynamic.drop", tables=[name]), caller.lake() as lake:
        caller.require(Action.DEFINE, name)
        own = definitions.get(lake.conn, name).name
        if not all(map(caller.sees, definitions.graph(lake.conn).dependents(own))):
            raise HasDependents(f"{own} is read by tables that you don't see", remedy="ask who administers the lake")
        gone = dynamic.drop(lake, Drop(START, name, cascade=cascade))
    return models.Dropped(dropped=[str(one) for one in gone])


# ---------------------------------------------------------------- operating
@router.post(
    f"{HOME}/{{table}}/refresh",
    response_model=list[models.RefreshModel],
    responses=documented(404, 409, 410, 504) | {202: {"model": models.Asked, "description": "A worker will do it"}},
)
def refresh_dynamic_table(
    table: TableName,
    caller: Who,
    response: Response,
    full: Annotated[bool, Query(description="Compute the whole query; only what differs is written.")] = False,
    wait: Annotated[bool, Query(description="False: leave it to the workers, and answer at once.")] = True,
) -> Any:
    """Bring it, and what it reads, to the newest snapshot.

    Where this process has Spark the answer is what was done (200); elsewhere, and without `wait`, where to look (202).
    """
    name = parse_name(table)
    with caller.audited("dynamic.refresh", tables=[name]) as entry, caller.lake() as lake:
        caller.require(Action.OPERATE, name)
        own = definitions.get(lake.conn, name).name
        if full or (wait and caller.desk.works):
            with caller.desk.working("a full refresh" if full else "a refresh"):
                done = refresh(lake, [own], full=full)
            _observe(done)
            _require_done(caller, done)
            entry.snapshot, entry.rows = done[-1].commit, done[-1].rows_inserted
            return _refreshes(caller, done)
        work = ask_for_refresh(lake, own)
    look = f"{_address(own)}/history"
    asked = models.Asked(table=str(own), work=work, look=look)
    return Response(asked.model_dump_json(), 202, {"location": look}, "application/json")


@router.post(f"{HOME}/{{table}}/suspend", responses=documented(404))
def suspend_dynamic_table(table: TableName, caller: Who) -> models.Changed:
    """Halt it, and all that read it."""
    name = parse_name(table)
    with caller.audited("dynamic.suspend", tables=[name]), caller.lake() as lake:
        caller.require(Action.OPERATE, name)
        changed = halting.suspend(lake, [name])
    return models.Changed(changed=[str(one) for one in changed if caller.sees(one)])


@router.post(f"{HOME}/{{table}}/resume", responses=documented(404))
def resume_dynamic_table(table: TableName, caller: Who) -> models.Changed:
    """Let it go on, with what waited for it and for nobody else."""
    name = parse_name(table)
    with caller.audited("dynamic.resume", tables=[name]), caller.lake() as lake:
        caller.require(Action.OPERATE, name)
        changed = halting.resume(lake, [name])
    return models.Changed(changed=[str(one) for one in changed if caller.sees(one)])


@router.post(f"{HOME}/{{table}}/verify", responses=documented(404, 409, 410))
def verify_dynamic_table(
    table: TableName,
    caller: Who,
    at: Annotated[SnapshotId | None, Query(description="As a reader sees it there.")] = None,
) -> models.VerifiedModel:
    """Let DuckDB compute its query at its data snapshot, and compare."""
    name = parse_name(table)
    with caller.audited("dynamic.verify", tables=[name]) as entry, caller.lake() as lake:
        caller.require(Action.OPERATE, name)
        if definitions.get(lake.conn, name).definition.dialect is Dialect.SPARK:
            with caller.desk.working("verifying a query in Spark's SQL"):
                found = verify(lake, name, at)
        else:
            found = verify(lake, name, at)
        entry.snapshot = found.b
    return models.VerifiedModel(**facts.verified(found))


# ---------------------------------------------------------------- what a caller sees
def _named(caller: Caller, action: Action, table: str) -> QualifiedName:
    name = parse_name(table)
    caller.require(action, name)
    return name


def _address(name: QualifiedName) -> str:
    """A header holds ASCII only, whatever people call their tables."""
    return f"{HOME}/{quote(str(name), safe='.')}"


def _text(statement: bytes) -> str:
    try:
        text = statement.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody("the statement is not UTF-8") from error
    if "\x00" in text:
        raise MalformedBody("a statement can't hold NUL")
    return text


def _sources(caller: Caller, wanted: Create) -> list[QualifiedName]:
    """The tables that the query names itself; before anything is looked up, so that no answer tells what there is."""
    definition = wanted.definition
    if definition.dialect is Dialect.SPARK and caller.identity.bounded:
        raise Forbidden(
            "DIALECT = 'spark' is for callers who see the whole lake: its functions reach beyond it",
            remedy="write the query in DuckDB's SQL",
        )
    at = wanted.places.get("query", wanted.at)
    return [name for _, name in tables_of(parse_query(definition.query, at, None, definition.dialect))]


def _require_seen(caller: Caller, lake: Lake, wanted: Create) -> None:
    """What it reads through views, too."""
    if caller.identity.bounded:
        caller.require(Action.SEE, *(source.name for source in dynamic.analysed(lake, wanted).sources))


@contextmanager
def _unnamed(caller: Caller) -> Iterator[None]:
    """A circle may lead through tables that the caller does not see."""
    try:
        yield
    except Cycle as error:
        if not caller.identity.bounded:
            raise
        raise Cycle("dynamic tables would read each other in a circle", place=error.place) from None


def _observe(done: Sequence[RefreshRecord]) -> None:
    """As a worker does: log and metrics know of every refresh of this process."""
    told = next((record for record in done if record.outcome is not Outcome.SUCCEEDED), None)
    for record in done:
        refreshed(record)
        metrics.observe_refresh(record, told=record is told)


def _require_done(caller: Caller, done: Sequence[RefreshRecord]) -> None:
    """Fail as the first that failed; of one that the caller does not see, it learns just that."""
    for record in done:
        if record.outcome is not Outcome.SUCCEEDED:
            if not caller.sees(record.name):
                raise UpstreamFailed("a table that it reads, and that you don't see, could not be refreshed")
            kind = RefreshFailed if record.error_code is None else of_code(record.error_code)
            message, _, remedy = (record.error_text or "it failed").partition(" → ")
            raise kind(message, remedy=remedy or None, place=str(record.name)) from record.cause


def _refreshes(caller: Caller, records: Sequence[RefreshRecord]) -> list[models.RefreshModel]:
    return [models.RefreshModel(**_within(caller, facts.refreshed(one))) for one in records if caller.sees(one.name)]


def _within(caller: Caller, record: dict[str, Any]) -> dict[str, Any]:
    """A refresh without what it read elsewhere; then its words go too, for they may name that."""
    sources = _seen(caller, record["sources"], "table")
    if len(sources) == len(record["sources"]):
        return record
    return record | {"sources": sources, "error": None, "reason": None, "remedy": None}


def _explained(caller: Caller, one: dict[str, Any]) -> dict[str, Any]:
    told = {key: value for key, value in one.items() if key != "_name"}
    waits = [name for name in told["waits_for"] if caller.sees(parse_name(name))]
    sources = _seen(caller, told["sources"])
    if len(sources) < len(told["sources"]):
        told |= {"reason": None, "remedy": None}
    return told | {"waits_for": waits, "sources": sources}


def _seen(caller: Caller, sources: list[dict[str, Any]], key: str = "name") -> list[dict[str, Any]]:
    return [one for one in sources if caller.sees(parse_name(one[key]))]
