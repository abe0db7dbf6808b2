"""The rule of ``delta`` for a state: what signed rows add to its groups, put together with what is kept of them.

Sums and counts are added up. A minimum is the smaller of what it was and of what came, unless a row went that had it
and nothing as small came: such a group is hurt, and computed anew from the sources. Where none is, the sources are not
read. All parts are exact, so this is what computing the state anew would give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from lakemill.core.algebra import (
    WEIGHT,
    Aggregate,
    Expr,
    Filter,
    IfAny,
    Join,
    Node,
    Part,
    Project,
    Read,
    Restrict,
    Scan,
    Stored,
    Unnest,
    at,
    column,
    consolidated,
    itself,
    names,
    together,
    union_all,
    weighed,
)
from lakemill.core.as_sql import leaf
from lakemill.core.state import EXTREMES, never_null

Restricting = Callable[[Node, tuple[tuple[Expr, str], ...], str], Node]
"""``delta.restrict``: a node's rows of the keys that a step has."""
_ZERO, _ANY = exp.Literal.number(0), "any"


def merged(state: Stored, signed: Node, restrict: Restricting) -> list[tuple[str, Node]]:
    """Steps from the signed rows of what is grouped to the state's delta, and to the state after it.

    *touched*: what they add to each group. *merged*: those groups, as they were and as they are. *hurt*: keys of groups
    whose extremes are not known from that.
    """
    assert isinstance(state.child, Aggregate)  # noqa: S101  (whoever calls has looked)
    return _Merging(state, state.child, restrict).steps(signed)


class _Merging:
    def __init__(self, state: Stored, groups: Aggregate, restrict: Restricting) -> None:
        self.state, self.child, self.restrict = state, groups, restrict
        self.keys = state.columns[: len(groups.keys)]
        self.parts = [(part, own) for part, (_, own) in zip(state.parts, state.columns[len(self.keys) :], strict=True)]
        self.touched, self.merged, self.hurt = (
            f"source{state.source}_{name}" for name in ("touched", "merged", "hurt")
        )

    def steps(self, signed: Node) -> list[tuple[str, Node]]:
        touched = self._touched(signed)
        both = self._both(names(touched))
        found = [(self.touched, touched), (self.merged, both)]
        new = [self._new(names(both))]
        if self._hurt() is not None:
            keys = tuple((own, column(own)) for _, own in self.keys) or ((_ANY, exp.true()),)
            found.append((self.hurt, Project(self._groups(names(both), "new", hurt=True), keys)))
            new.append(IfAny(weighed(self._anew(), 1), self.hurt))
        old = Project(
            self._groups(names(both), "old"),
            (*itself(own for _, own in self.keys), *((own, column(f"old_{own}")) for _, own in self.parts)),
        )
        found.append((leaf(self.state.source, "delta"), union_all([*new, weighed(old, -1)])))
        unchanged = weighed(self._scan("a"), 1)
        after = consolidated(union_all([unchanged, self._scan("delta")]), names(self.state))
        renamed = tuple((mine, column(name)) for name, mine in self.state.columns)
        found.append((leaf(self.state.source, "b"), Project(after, renamed)))
        return found

    def _scan(self, end: str) -> Scan:
        return Scan(self.state.source, self.state.columns, end)  # type: ignore[arg-type]

    # ------------------------------------------------------------ the groups that changed
    def _touched(self, signed: Node) -> Node:
        """By group: what is added to sums and counts; of extremes, those of the rows that came and of those that went.

        Every row counts by itself: a product of a decimal and a weight can be too wide, a sum is not.
        """
        copies = exp.GenerateSeries(
            start=exp.Literal.number(1), end=exp.Abs(this=column(WEIGHT)), is_end_exclusive=False
        )
        added: list[tuple[str, Expr]] = []
        for part, own in self.parts:
            if part.kind in EXTREMES:
                function = EXTREMES[part.kind]
                added += [(f"{side}_{own}", function(this=_of(part.value, sign))) for side, sign in _SIDES]
            else:
                added.append((own, _added(part)))
        groups = Aggregate(Unnest(signed, "__copy", copies), self.child.keys, tuple(added))
        some = [
            exp.NEQ(this=column(name), expression=_ZERO.copy())
            if isinstance(value, exp.Cast)
            else exp.Not(this=exp.Is(this=column(name), expression=exp.null()))
            for name, value in added
        ]
        keys = tuple((own, column(name)) for name, own in self.keys)
        return Project(Filter(groups, exp.or_(*some)), (*keys, *itself(name for name, _ in added)))

    def _both(self, touched: Sequence[str]) -> Node:
        """The same groups with their parts before, and sums and counts as they are."""
        before: Node = self._scan("a")
        if self.keys:
            before = Restrict(before, tuple((column(name), own) for name, own in self.keys), self.touched)
        before = Project(before, tuple((own, column(name)) for name, own in self.state.columns))
        keys = [own for _, own in self.keys]
        sides: list[Node] = []
        for old, rows in ((True, before), (False, Read(self.touched, tuple(touched)))):
            items = list(itself(keys))
            for part, own in self.parts:
                if part.kind in EXTREMES:
                    none = exp.cast(exp.null(), exp.DataType.build(part.type, dialect="duckdb"))
                    items.append((f"old_{own}", column(own) if old else none))
                    items += [(f"{side}_{own}", none if old else column(f"{side}_{own}")) for side, _ in _SIDES]
                else:
                    items += [(f"old_{own}", column(own) if old else _ZERO.copy()), (f"new_{own}", column(own))]
            sides.append(Project(rows, tuple(items)))
        values: list[tuple[str, Expr]] = []
        for part, own in self.parts:
            if part.kind in EXTREMES:
                function = EXTREMES[part.kind]
                values += [
                    (f"{side}_{own}", function(this=column(f"{side}_{own}"))) for side in ("old", "come", "gone")
                ]
            else:
                type_ = exp.DataType.build(part.type, dialect="duckdb")
                values += [
                    (f"{end}_{own}", exp.cast(exp.Sum(this=column(f"{end}_{own}")), type_)) for end in ("old", "new")
                ]
        return Aggregate(union_all(sides), itself(keys), tuple(values))

    # ------------------------------------------------------------ both ends of them
    def _groups(self, columns: Sequence[str], end: str, hurt: bool | None = None) -> Node:
        """The merged groups that there are at an end, without keys always one; all, or those that are hurt, or not."""
        (_, rows), *_ = self.parts
        conditions: list[Expr] = []
        if self.keys:
            conditions.append(exp.GT(this=column(f"{end}_{rows}"), expression=_ZERO.copy()))
        found = self._hurt()
        if hurt is not None and found is not None:
            conditions.append(found if hurt else exp.Not(this=exp.paren(found)))
        merged: Node = Read(self.merged, tuple(columns))
        return Filter(merged, together(conditions)) if conditions else merged

    def _new(self, columns: Sequence[str]) -> Node:
        values: list[tuple[str, Expr]] = []
        for part, own in self.parts:
            value: Expr = column(f"new_{own}")
            if part.kind in EXTREMES:
                nearer = exp.Least if part.kind == "min" else exp.Greatest
                value = nearer(this=column(f"old_{own}"), expressions=[column(f"come_{own}")], ignore_nulls=True)
            values.append((own, value))
        groups = self._groups(columns, "new", hurt=False)
        return weighed(Project(groups, (*itself(own for _, own in self.keys), *values)), 1)

    def _hurt(self) -> Expr | None:
        """Whether an extreme of a group went, and nothing came that is as far out; never NULL."""
        hurt: list[Expr] = []
        for part, own in self.parts:
            if part.kind in EXTREMES:
                old, come, gone = (column(f"{side}_{own}") for side in ("old", "come", "gone"))
                beyond, within = (exp.LTE, exp.GT) if part.kind == "min" else (exp.GTE, exp.LT)
                lost = exp.Coalesce(this=beyond(this=gone, expression=old), expressions=[exp.false()])
                short = exp.Coalesce(this=within(this=come, expression=old.copy()), expressions=[exp.true()])
                hurt.append(exp.and_(lost, short))
        return exp.paren(exp.or_(*hurt)) if hurt else None

    def _anew(self) -> Node:
        """The hurt groups from the sources."""
        groups: Node = self.child
        if self.keys:
            wanted = tuple((column(name), own) for name, own in self.keys)
            groups = self.restrict(groups, wanted, self.hurt)
        else:
            groups = Join("inner", groups, Read(self.hurt, (_ANY,)), exp.true())
        return Project(at(groups, "b"), tuple((own, column(name)) for name, own in self.state.columns))


_SIDES = (("come", 1), ("gone", -1))


def _of(value: Expr, sign: int) -> Expr:
    """The value in rows of this sign, NULL in others."""
    wanted = (exp.GT if sign > 0 else exp.LT)(this=column(WEIGHT), expression=_ZERO.copy())
    return exp.Case(ifs=[exp.If(this=wanted, true=value.copy())])


def _added(part: Part) -> Expr:
    """What signed rows, each of weight 1 or −1, add to a sum or a count."""
    come = exp.GT(this=column(WEIGHT), expression=_ZERO.copy())
    each: Expr = exp.Literal.number(1)
    if part.kind == "total":
        each = exp.cast(part.value.copy(), exp.DataType.build(part.type, dialect="duckdb"))
    signed: Expr = exp.Case(ifs=[exp.If(this=come, true=each)], default=exp.Neg(this=exp.paren(each.copy())))
    if part.kind == "count":
        there = exp.Not(this=exp.Is(this=exp.paren(part.value.copy()), expression=exp.null()))
        signed = exp.Case(ifs=[exp.If(this=there, true=signed)])
    return never_null(exp.Sum(this=signed), part.type)
