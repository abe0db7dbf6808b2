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
    return f"CAST(least({call.take(number, t.BIGINT)}, {_LARGEST}) AS INT)"


def _substring(call: Call) -> Value:
    """DuckDB counts a start of 0 as a character before the first, and reads backwards for a negative length."""
    text, start = call.take(0, t.VARCHAR), _count(call, 1)
    fixed = isinstance(call.args[1].constant, int) and call.args[1].constant > 0
    if len(call.args) == 2:
        first = start if fixed else f"greatest({start}, 1)"
        body = f"substring({text}, {first})"
    else:
        length = _count(call, 2)
        if isinstance(call.args[2].constant, int) and call.args[2].constant < 0:
            raise call.refuse("substring with a negative length", "give a length from zero up")
        kept = f"{length}" if fixed else f"{length} + least({start}, 1) - 1"
        body = f"substring({text}, {start if fixed else f'greatest({start}, 1)'}, {kept})"
        if not isinstance(call.args[2].constant, int):
            odd = fails("substring with a negative length")
            body = f"CASE WHEN {length} < 0 THEN {odd} ELSE {body} END"
    if not fixed:
        odd = fails("substring from a negative start")
        body = f"CASE WHEN {start} < 0 THEN {odd} ELSE {body} END"
    return Value(body, t.VARCHAR)


def _end(function: str) -> Rule:
    """left and right: a negative number leaves that many characters out at the other end."""

    def rule(call: Call) -> Value:
        text, count = call.take(0, t.VARCHAR), _count(call, 1)
        kept = f"CASE WHEN {count} < 0 THEN greatest(char_length({text}) + {count}, 0) ELSE {count} END"
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


def _trim(call: Call) -> Value:
    side = str(call.node.args.get("position") or "BOTH").upper()
    signs = call.word(1, "what to trim") if len(call.args) > 1 else " "
    if not signs:
        raise call.refuse("nothing to trim", "name the characters")
    return Value(f"trim({side} {string(signs)} FROM {call.take(0, t.VARCHAR)})", t.VARCHAR)


def _translate(call: Call) -> Value:
    source, target = call.word(1, "the first set"), call.word(2, "the second set")
    if len(set(source)) < len(source):
        raise call.refuse("a character stands twice in the first set", "name each once")
    return Value(f"translate({call.take(0, t.VARCHAR)}, {string(source)}, {string(target)})", t.VARCHAR)


# ---------------------------------------------------------------- letters
def _folded(function: str, odd: str, instead: str) -> Rule:
    """One letter at a time, as DuckDB does it: Java looks at the neighbours, and makes two letters of some.

    ``odd``: letters that DuckDB changes to ``instead``, and Java differently.
    """

    def rule(call: Call) -> Value:
        return Value(folded(call.take(0, t.VARCHAR), function), t.VARCHAR)

    return rule


def folded(text: str, function: str) -> str:
    known = f"{function}(c)"
    each = f"CASE WHEN char_length({known}) = 1 THEN {known} ELSE c END"
    if function == "upper":
        each = f"CASE WHEN c = 'ß' THEN 'ẞ' ELSE {each} END"
    else:
        each = f"CASE WHEN c = 'İ' THEN 'i' ELSE {each} END"
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
    return Value(f"coalesce(regexp_extract({call.take(0, t.VARCHAR)}, {pattern}, {group}), '')", t.VARCHAR)


def _replace(call: Call) -> Value:
    text, pattern, by = call.take(0, t.VARCHAR), call.word(1, "the pattern"), call.word(2, "the replacement")
    options = call.word(3, "the options") if len(call.args) > 3 else ""
    if options not in ("", "g"):
        raise call.refuse(f"the option {options!r} is not translated", "write the pattern without it")
    java = _pattern(call, pattern)
    if options and any(not found[0] for sample in ("", "a", "0 a") for found in re.finditer(pattern, sample)):
        raise call.refuse("a pattern that matches nothing is replaced differently", "let it match one character")
    by = re.sub(r"\\(\\)|([\\$])", lambda found: "\\\\" if found[1] else "\\" + found[2], by) if "\\" not in by else by
    if re.search(r"\\(?![0-9\\])", by) or ("$" in by and "\\" in by):
        raise call.refuse("the replacement is read differently by the engines", "use plain text and \\1 to \\9")
    spark = re.sub(r"\\([0-9])", r"$\1", by) if "\\$" not in by else by
    if options:
        return Value(f"regexp_replace({text}, {string(java)}, {string(spark)})", t.VARCHAR)
    # Spark has no "first one only": what is before it is matched along, as little as there is
    shifted = re.sub(r"\$([0-9])", lambda found: f"${int(found[1]) + 2}", spark)
    if re.search(r"\$0|\$9", spark) or "^" in pattern:
        raise call.refuse("replacing the first match only is not translated here", "add the option 'g'")
    first = f"(?d)\\A((?s:.*?))({java[4:]})"
    return Value(f"regexp_replace({text}, {string(first)}, {string('$1' + shifted)})", t.VARCHAR)


# ---------------------------------------------------------------- the list
_V, _B = t.VARCHAR, t.BIGINT

TEXTS: Mapping[str, Rule] = {
    "Upper": _folded("upper", "ß", "ẞ"),
    "Lower": _folded("lower", "İ", "i"),
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
    "SHA2": simple("sha2(CAST({0} AS BINARY), 256)", _V, _V),
    "RegexpLike": _matches,
    "RegexpFullMatch": _matches,
    "RegexpExtract": _extract,
    "RegexpReplace": _replace,
}
