"""Functions of text that both engines answer alike: by code points, NULLs as DuckDB treats them, plain patterns only.

DuckDB's regular expressions are RE2's, Spark's are Java's. A pattern is taken when it is a constant made of parts that
mean the same in both; the few that differ by a sign (``$``, ``.``) are rewritten, the rest is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakemill.core import ducktypes as t
from lakemill.core.casts import explicit, implicit
from lakemill.core.functions import Call, Rule, simple
from lakemill.core.value import Value, fails, string

_LARGEST = 2**31 - 1


def as_text(value: Value, call: Call) -> str:
    """What ``||`` and concat make of a value."""
    if value.type in (t.NULL, t.STRING_LITERAL):
        return implicit(value, t.VARCHAR, call.node).sql
    return explicit(value, t.VARCHAR, call.node).sql


def _concat(call: Call) -> Value:
    return Value(f"concat_ws('', {', '.join(as_text(value, call) for value in call.args)})", t.VARCHAR)


def _concat_ws(call: Call) -> Value:
    return Value(f"concat_ws({', '.join(as_text(value, call) for value in call.args)})", t.VARCHAR)


def pipes(call: Call) -> Value:
    """``||``: NULL with anything is NULL; lists have an order of their own."""
    if any(value.type.name in ("LIST", "BLOB") for value in call.args):
        raise call.refuse("|| of lists is not translated", "keep the lists apart")
    return Value(f"concat({', '.join(as_text(value, call) for value in call.args)})", t.VARCHAR)


# ---------------------------------------------------------------- parts of a text
def _count(call: Call, number: int) -> str:
    """A length or position as Spark's functions take it."""
    value = call.args[number]
    if isinstance(value.constant, int):
        return str(min(value.constant, _LARGEST))
    given = call.take(number, t.BIGINT)  # least() would take NULL for the bound
    return f"CAST(CASE WHEN {given} > {_LARGEST} THEN {_LARGEST} ELSE {given} END AS INT)"


def _substring(call: Call) -> Value:
    """DuckDB counts a start of 0 as a character before the first, a negative one from the end."""
    text, start = call.take(0, t.VARCHAR), _count(call, 1)
    fixed = call.args[1].constant
    plain = isinstance(fixed, int) and fixed > 0
    first = start if plain else f"CASE WHEN {start} = 0 THEN 1 ELSE {start} END"
    if len(call.args) == 2:
        return Value(f"substring({text}, {first})", t.VARCHAR)
    length, given = _count(call, 2), call.args[2].constant
    if isinstance(given, int) and given < 0:
        raise call.refuse("substring with a negative length", "give a length from zero up")
    kept = length if plain else f"CASE WHEN {start} = 0 THEN {length} - 1 ELSE {length} END"
    body = f"substring({text}, {first}, {kept})"
    if not isinstance(given, int):
        body = f"CASE WHEN {length} < 0 THEN {fails('substring with a negative length')} ELSE {body} END"
    return Value(body, t.VARCHAR)


def _end(function: str) -> Rule:
    """left and right: a negative number leaves that many characters out at the other end."""

    def rule(call: Call) -> Value:
        text, count = call.take(0, t.VARCHAR), _count(call, 1)
        kept = f"CASE WHEN {count} < 0 THEN char_length({text}) + {count} ELSE {count} END"
        return Value(f"{function}({text}, {kept})", t.VARCHAR)

    return rule


def _split_part(call: Call) -> Value:
    text, separator = call.take(0, t.VARCHAR), call.word(1, "the separator")
    number = call.args[2].constant
    if not separator or not isinstance(number, int) or number == 0:
        raise call.refuse("split_part is not the same in both engines here", "give a separator and a number but 0")
    return Value(f"split_part({text}, {string(separator)}, {number})", t.VARCHAR)


def _split(call: Call) -> Value:
    separator = call.word(1, "the separator")
    if not separator or "\\E" in separator:
        raise call.refuse("string_split is not the same in both engines here", "give a plain separator")
    plain = string("\\Q" + separator + "\\E")
    return Value(f"split({call.take(0, t.VARCHAR)}, {plain})", t.list_of(t.VARCHAR))


def _pad(call: Call) -> Value:
    if not call.word(2, "the padding"):
        raise call.refuse("nothing to pad with", "give a text of one character or more")
    function = "lpad" if call.node.args.get("is_left") else "rpad"
    body = f"{function}({call.take(0, t.VARCHAR)}, {_count(call, 1)}, {call.take(2, t.VARCHAR)})"
    return Value(body, t.VARCHAR)


_SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""What DuckDB trims when nothing is named: spaces of every script, but no tabs or line ends."""


def _trim(call: Call) -> Value:
    side = str(call.node.args.get("position") or "BOTH").upper()
    signs = call.word(1, "what to trim") if len(call.args) > 1 else _SPACES
    if not signs:
        raise call.refuse("nothing to trim", "name the characters")
    return Value(f"trim({side} {string(signs)} FROM {call.take(0, t.VARCHAR)})", t.VARCHAR)


def _translate(call: Call) -> Value:
    source, target = call.word(1, "the first set"), call.word(2, "the second set")
    if len(set(source)) < len(source):
        raise call.refuse("a character stands twice in the first set", "name each once")
    return Value(f"translate({call.take(0, t.VARCHAR)}, {string(source)}, {string(target)})", t.VARCHAR)


# ---------------------------------------------------------------- letters
def _letters(*spans: tuple[int, int]) -> str:
    return "".join(chr(code) for first, last in spans for code in range(first, last + 1))


_IOTA = _letters((0x1F80, 0x1F87), (0x1F90, 0x1F97), (0x1FA0, 0x1FA7)) + "ᾳῃῳ"
_NEW_SMALL = "\u019b\u0264\u1c8a\ua7cd\ua7db" + _letters((0x10D70, 0x10D85))  # Unicode 16 knows them as letters
_NEW_LARGE = "\u1c89\ua7cb\ua7cc\ua7da\ua7dc" + _letters((0x10D50, 0x10D65))
# Letters of all Unicode that DuckDB 1.5 changes differently than Spark 4.1 does, and to what
_ODD = {
    "upper": (
        "ß" + _IOTA + _NEW_SMALL,
        "ẞ" + _letters((0x1F88, 0x1F8F), (0x1F98, 0x1F9F), (0x1FA8, 0x1FAF)) + "ᾼῌῼ" + _NEW_SMALL,
    ),
    "lower": ("İ" + _NEW_LARGE, "i" + _NEW_LARGE),
}


def _folded(function: str) -> Rule:
    return lambda call: Value(folded(call.take(0, t.VARCHAR), function), t.VARCHAR)


def folded(text: str, function: str) -> str:
    """One letter at a time, as DuckDB does it: Java looks at the neighbours, and makes two letters of some."""
    known, (odd, instead) = f"{function}(c)", _ODD[function]
    each = f"CASE WHEN char_length({known}) = 1 THEN {known} ELSE c END"
    each = f"CASE WHEN contains('{odd}', c) THEN translate(c, '{odd}', '{instead}') ELSE {each} END"
    letters = f"array_join(transform(split({text}, ''), c -> {each}), '')"
    return f"CASE WHEN char_length({text}) = octet_length({text}) THEN {function}({text}) ELSE {letters} END"


# ---------------------------------------------------------------- patterns
_PIECE = re.compile(
    r"""(?P<literal>[^\\^$.|?*+(){}\[\]])|(?P<escaped>\\[\\^$.|?*+(){}\[\]/\-"'#@&~%=:;,<>! ])|(?P<digit>\\[dD])
    |(?P<class>\[\^?(?:[^\\\[\]&^~|-]|[a-zA-Z0-9]-[a-zA-Z0-9]|\\[d.\-+*/\]\[\\])+-?\])|(?P<dot>\.)|(?P<start>\^)
    |(?P<end>\$)|(?P<open>\((?:\?:)?(?!\?))|(?P<close>\))|(?P<bar>\|)|(?P<times>[*+?]\??|\{\d{1,3}(?:,\d{0,3})?\}\??)""",
    re.VERBOSE,
)


def _pattern(call: Call, text: str) -> str:
    """The Java pattern that finds what RE2 finds."""
    out, at, before = [], 0, ""
    while at < len(text):
        piece = _PIECE.match(text, at)
        kind = piece.lastgroup if piece is not None else None
        if piece is None or kind is None or (kind == "times" and before in ("times", "", "open", "bar", "start")):
            raise call.refuse(
                f"the pattern {text!r} has parts, at {text[at:]!r}, that DuckDB and Spark read differently",
                "use characters, classes such as [a-z], \\d, groups, |, ^, $ and the usual counts",
            )
        out.append({"end": r"\z"}.get(kind, piece[0]))
        at, before = piece.end(), kind
    return "(?d)" + "".join(out)  # a dot stops at \n only, as in RE2


def _matches(call: Call) -> Value:
    """regexp_matches. The operator ``~`` wants the whole text to match, but sqlglot takes it for this function."""
    if type(call.node).__name__ == "RegexpLike" and "start" not in call.node.meta:  # operators have no place
        raise call.refuse("~ is not translated", "write regexp_full_match(text, pattern)")
    if len(call.args) > 2:
        raise call.refuse("options of a pattern are not translated", "write the pattern without options")
    pattern = _pattern(call, call.word(1, "the pattern"))
    if type(call.node).__name__ == "RegexpFullMatch":
        pattern = f"(?d)\\A(?:{pattern[4:]})\\z"
    return Value(f"({call.take(0, t.VARCHAR)} RLIKE {string(pattern)})", t.BOOLEAN)


def _extract(call: Call) -> Value:
    group = call.args[2].constant if len(call.args) > 2 else 0
    text = call.word(1, "the pattern")
    if not isinstance(group, int) or len(call.args) > 3 or not 0 <= group <= len(re.findall(r"\((?!\?)", text)):
        raise call.refuse("regexp_extract takes a constant group here", "give the number of a group of the pattern")
    pattern = string(_pattern(call, text))
    return Value(f"regexp_extract({call.take(0, t.VARCHAR)}, {pattern}, {group})", t.VARCHAR)


def _replace(call: Call) -> Value:
    text, pattern, by = call.take(0, t.VARCHAR), call.word(1, "the pattern"), call.word(2, "the replacement")
    options = call.word(3, "the options") if len(call.args) > 3 else ""
    if options not in ("", "g"):
        raise call.refuse(f"the option {options!r} is not translated", "write the pattern without it")
    java, spark = _pattern(call, pattern), _replacement(call, by)
    if options and any(not found[0] for sample in ("", "a", "0 a") for found in re.finditer(pattern, sample)):
        raise call.refuse("a pattern that matches nothing is replaced differently", "let it match one character")
    if options:
        return Value(f"regexp_replace({text}, {string(java)}, {string(spark)})", t.VARCHAR)
    # Spark has no "first one only": what is before it is matched along, as little as there is
    shifted = re.sub(r"(?<!\\)\$([0-9])", lambda found: f"${int(found[1]) + 2}", spark)
    if re.search(r"(?<!\\)\$[08-9]", spark) or "^" in pattern:
        raise call.refuse("replacing the first match only is not translated here", "add the option 'g'")
    first = f"(?d)\\A((?s:.*?))({java[4:]})"
    return Value(f"regexp_replace({text}, {string(first)}, {string('$1' + shifted)})", t.VARCHAR)


def _replacement(call: Call, text: str) -> str:
    """RE2 writes groups as ``\\1``, Java as ``$1``."""

    def java(found: re.Match[str]) -> str:
        if found[1]:
            return "$" + found[1]
        if found[0] in ("$", "\\\\"):
            return "\\" + found[0][0]
        raise call.refuse(f"{found[0]} in a replacement means nothing", "use plain text and \\\\1 to \\\\9")

    return re.sub(r"\\([0-9])|\$|\\\\|\\", java, text)


def _sha256(call: Call) -> Value:
    if call.node.args["length"].name != "256":
        raise call.refuse(f"{call.node.sql('duckdb')} is not known", "use sha256")
    return Value(f"sha2(CAST({call.take(0, t.VARCHAR)} AS BINARY), 256)", t.VARCHAR)


# ---------------------------------------------------------------- the list
_V, _B = t.VARCHAR, t.BIGINT

TEXTS: Mapping[str, Rule] = {
    "Upper": _folded("upper"),
    "Lower": _folded("lower"),
    "strlen": simple("CAST(octet_length({0}) AS BIGINT)", _B, _V),
    "Substring": _substring,
    "Left": _end("left"),
    "Right": _end("right"),
    "StrPosition": simple("CAST(instr({0}, {1}) AS BIGINT)", _B, _V, _V),
    "SplitPart": _split_part,
    "Split": _split,
    "Pad": _pad,
    "Replace": simple("replace({0}, {1}, {2})", _V, _V, _V, _V),
    "Repeat": lambda call: Value(f"repeat({call.take(0, _V)}, {_count(call, 1)})", _V),
    "StartsWith": simple("startswith({0}, {1})", t.BOOLEAN, _V, _V),
    "EndsWith": simple("endswith({0}, {1})", t.BOOLEAN, _V, _V),
    "Concat": _concat,
    "ConcatWs": _concat_ws,
    "DPipe": pipes,
    "Trim": _trim,
    "Translate": _translate,
    "Ascii": simple("ascii({0})", t.INTEGER, _V),
    "Unicode": simple("CASE WHEN {0} = '' THEN -1 ELSE ascii({0}) END", t.INTEGER, _V),
    "MD5": simple("md5(CAST({0} AS BINARY))", _V, _V),
    "SHA2": _sha256,
    "RegexpLike": _matches,
    "RegexpFullMatch": _matches,
    "RegexpExtract": _extract,
    "RegexpReplace": _replace,
}
