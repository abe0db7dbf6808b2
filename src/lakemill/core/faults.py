"""What is wrong with a value, in words: the path to it, what was expected there, what came instead.

For ``core/records``, which meets msgspec's messages and knows the columns. A path is ``.a[0].b`` within a record. Only
texts are made here; what is wrong was decided before.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import DecodeError, Raw

from lakemill.core.kinds import exact
from lakemill.core.schema import Column

_SHOWN = 60
_PATH = re.compile(r" - at `\$(.*?)`(?= - at `\$|$)", re.DOTALL)
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[]+)")
_anything = msgspec.json.Decoder(float_hook=exact)
_encode = msgspec.json.Encoder(decimal_format="number").encode


def article(type_: str) -> str:
    """A type of DuckDB as a sentence names it."""
    text = type_.replace(", ", ",") if type_.startswith("DECIMAL") else type_
    return f"{'an' if text[0] in 'AEIO' else 'a'} {text}"


def told(error: Exception) -> tuple[str, str]:
    """A message of msgspec, and the path in it: `` - at `$.a[0]` ``, the innermost first where checks are nested."""
    text = str(error)
    paths = _PATH.findall(text)
    return _PATH.sub("", text), "".join(reversed(paths))


def part_at(column: Column, path: str) -> Column | None:
    """The part of a column that a path leads to; None where it leads nowhere that we know."""
    at = column
    for index, name in _STEP.findall(path):
        if index:
            if at.type == "map":
                continue  # an entry: its key or value follows
            if at.type != "list":
                return None
            at = at.children[0]
        elif at.type == "map" and name in ("key", "value"):
            at = at.children[0 if name == "key" else 1]
        else:
            below = next((child for child in at.children if at.type == "struct" and child.name == name), None)
            if below is None:
                return None
            at = below
    return at


def shown(raw: bytes | Raw, path: str = "") -> str:
    """A value for people: what stands at the path, cut where it is long."""
    try:
        value = _anything.decode(raw)
        for index, name in _STEP.findall(path):
            value = value[int(index)] if index else value[name]
        text = repr(value) if isinstance(value, str) else _encode(value).decode()
    except (DecodeError, ValueError, LookupError, TypeError, RecursionError):
        text = bytes(raw).decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
