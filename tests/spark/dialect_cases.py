"""What the conformance suite runs through both engines: expressions over one table of awkward values.

Cases stand in blocks, with ``;;`` or the end of the line between two. Every name on the allow-lists of ``core/dialect``
must occur here; ``test_dialect.py`` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random


def each(block: str) -> list[str]:
    return [case for line in block.strip().splitlines() for case in line.split(" ;; ")]


def crossed(template: str, *choices: Iterable[str]) -> list[str]:
    """The template with every combination of words."""
    found: list[tuple[str, ...]] = [()]
    for words in choices:
        known = list(words)
        found = [(*before, word) for before in found for word in known]
    return [template.format(*words) for words in found]


# column: its DuckDB type; where the Parquet file that Spark reads has another, that one; awkward values as DuckDB SQL
COLUMNS: dict[str, tuple[str, str, list[str]]] = {
    "t1": ("TINYINT", "TINYINT", each(r"""0 ;; 1 ;; -1 ;; 127 ;; -128 ;; 7""")),
    "k1": ("SMALLINT", "SMALLINT", each(r"""0 ;; 3 ;; -3 ;; 32767 ;; -32768""")),
    "i1": (
        "INTEGER",
        "INTEGER",
        each(r"""
0 ;; 1 ;; -1 ;; 2 ;; -7 ;; 10 ;; 2147483647 ;; -2147483648 ;; 100 ;; 25 ;; -25
"""),
    ),
    "i2": ("INTEGER", "INTEGER", each(r"""0 ;; 1 ;; -1 ;; 3 ;; -2 ;; 5 ;; 2147483647 ;; 12""")),
    "b1": (
        "BIGINT",
        "BIGINT",
        each(r"""
0 ;; 1 ;; -5 ;; 9223372036854775807 ;; -9223372036854775808 ;; 9007199254740993 ;; 42
"""),
    ),
    "b2": ("BIGINT", "BIGINT", each(r"""0 ;; 2 ;; -3 ;; 4 ;; 1000000007 ;; 9007199254740992""")),
    "h1": (
        "HUGEINT",
        "DECIMAL(38,0)",
        each(r"""0 ;; 1 ;; -1 ;; 99999999999999999999 ;; -12345678901234567890 ;; 77"""),
    ),
    "u1": ("UINTEGER", "BIGINT", each(r"""0 ;; 1 ;; 4294967295 ;; 77""")),
    "u2": ("UBIGINT", "DECIMAL(20,0)", each(r"""0 ;; 1 ;; 18446744073709551615 ;; 77""")),
    "d1": (
        "DECIMAL(15,2)",
        "DECIMAL(15,2)",
        each(r"""
0 ;; 1.00 ;; -1.00 ;; 0.05 ;; -0.05 ;; 1.5 ;; 2.5 ;; -2.5 ;; 9999999999999.99 ;; -9999999999999.99 ;; 123.45
"""),
    ),
    "d2": (
        "DECIMAL(9,4)",
        "DECIMAL(9,4)",
        each(r"""
0 ;; 0.5 ;; -0.5 ;; 1.2345 ;; 2.3450 ;; -2.3450 ;; 99999.9999 ;; 0.0001
"""),
    ),
    "d3": (
        "DECIMAL(38,10)",
        "DECIMAL(38,10)",
        each(r"""
0 ;; 1.5 ;; -12345678901.0123456789 ;; 999999999.0000000001 ;; 0.0000000001
"""),
    ),
    "d4": ("DECIMAL(38,2)", "DECIMAL(38,2)", each(r"""0 ;; 1.50 ;; 1.51 ;; 0.00 ;; 999999999 ;; -7.25""")),
    "f1": (
        "DOUBLE",
        "DOUBLE",
        each(r"""
0 ;; '-0.0' ;; 1 ;; -1 ;; 0.5 ;; 2.5 ;; -2.5 ;; 1.5 ;; 0.285 ;; 2.675 ;; 1e300 ;; -1e300 ;; 1e-300 ;; 'NaN'
'Infinity' ;; '-Infinity' ;; 123456789.987654321 ;; 0.49999999999999994 ;; 4503599627370497.5
"""),
    ),
    "f2": (
        "DOUBLE",
        "DOUBLE",
        each(r"""
0 ;; '-0.0' ;; 1 ;; 2 ;; -3 ;; 0.1 ;; 'NaN' ;; 'Infinity' ;; 7.25 ;; 1e10 ;; -0.7
"""),
    ),
    "r1": ("FLOAT", "FLOAT", each(r"""0 ;; 1.5 ;; -2.5 ;; 3.4e38 ;; 'NaN' ;; 0.1""")),
    "s1": (
        "VARCHAR",
        "VARCHAR",
        each(r"""
'' ;; ' ' ;; 'a' ;; 'abc' ;; 'ABC' ;; 'aXbXc' ;; 'a,b,,c' ;; ',x,' ;; 'ä' ;; 'Äöü ß' ;; 'straße' ;; 'ΑΣ ΟΔΟΣ'
'İstanbul' ;; '🦆' ;; 'a🦆b' ;; 'e' || chr(769) ;; '%' ;; 'a_c' ;; 'a\b' ;; 'line' || chr(10) || 'two' ;; '  pad  '
chr(9) || 'tab' ;; 'xyxabcxyx' ;; '123' ;; '-45' ;; '3.75' ;; '2020-02-29' ;; 'true' ;; '1.5e3' ;; 'ﬁn' ;; 'ŉ'
'ǆ Ǆ ǅ' ;; 'ς σ Σ' ;; chr(160) || 'nbsp' ;; '日本語' ;; '$1 \1' ;; 'hello'
"""),
    ),
    "s2": (
        "VARCHAR",
        "VARCHAR",
        each(r"""
'' ;; 'a' ;; 'b' ;; 'abc' ;; '%' ;; 'a%' ;; '_b%' ;; 'X' ;; 'ä' ;; '🦆' ;; '\' ;; 'c' ;; ',' ;; 'a\b'
"""),
    ),
    "s3": (
        "VARCHAR",
        "VARCHAR",
        each(r"""
'' ;; '1' ;; ' 42 ' ;; '-7' ;; '+5' ;; 'abc' ;; '99999999999' ;; '-0' ;; '127' ;; '128' ;; '9223372036854775808'
'x1'
"""),
    ),
    "s4": (
        "VARCHAR",
        "VARCHAR",
        each(r"""
'' ;; '1' ;; ' 42 ' ;; '-7.25' ;; '+5.5' ;; 'abc' ;; '.5' ;; '1.' ;; '2.345' ;; '-2.345' ;; '99999999999.99'
'0.00000001'
"""),
    ),
    "s5": (
        "VARCHAR",
        "VARCHAR",
        each(r"""
'' ;; '1' ;; ' 42 ' ;; '-7.25' ;; '1e3' ;; '-1.5E-7' ;; '.5' ;; '1.' ;; '1e308' ;; '0.1' ;; 'abc' ;; '1.5f' ;; '2d'
"""),
    ),
    "s6": (
        "VARCHAR",
        "VARCHAR",
        each(r"""
'' ;; '2020-02-29' ;; '2020-1-5' ;; '2020-02-30' ;; '1582-10-10' ;; '0001-01-01' ;; '--' ;; 'abc' ;; 'x2020-01-01'
"""),
    ),
    "s7": (
        "VARCHAR",
        "VARCHAR",
        each(r"""
'' ;; '2020-02-29' ;; '2020-02-29 12:34:56' ;; '2020-02-29T12:34:56.789' ;; '2020-02-30 00:00:00'
'1969-12-31 23:59:59.999999'
"""),
    ),
    "s8": ("VARCHAR", "VARCHAR", each(r"""'' ;; 'true' ;; 'FALSE' ;; 't' ;; 'F' ;; '1' ;; '0' ;; 'xyz' ;; '2'""")),
    "dt1": (
        "DATE",
        "DATE",
        each(r"""
'2020-02-29' ;; '1970-01-01' ;; '1969-12-31' ;; '2019-12-30' ;; '2021-01-03' ;; '2000-01-31' ;; '0001-01-01'
'9999-12-31' ;; '1582-10-10' ;; '2024-03-31'
"""),
    ),
    "dt2": (
        "DATE",
        "DATE",
        each(r"""
'2020-03-01' ;; '1970-01-01' ;; '2019-12-29' ;; '2026-12-28' ;; '1900-02-28' ;; '2024-02-29'
"""),
    ),
    "ts1": (
        "TIMESTAMP",
        "TIMESTAMP",
        each(r"""
'2020-02-29 23:59:59.999999' ;; '1970-01-01 00:00:00' ;; '1969-12-31 23:59:59.5' ;; '2020-01-31 10:11:12'
'1582-10-10 01:02:03.000004' ;; '2019-12-30 00:00:00' ;; '9999-12-31 12:00:00' ;; '0001-01-01 00:00:00.1'
"""),
    ),
    "ts2": (
        "TIMESTAMP",
        "TIMESTAMP",
        each(r"""
'2020-03-01 00:00:00' ;; '1970-01-01 00:00:00.000001' ;; '2021-06-15 13:00:00' ;; '1960-05-05 05:05:05.05'
"""),
    ),
    "tz1": (
        "TIMESTAMPTZ",
        "TIMESTAMPTZ",
        each(r"""
'2020-02-29 23:59:59.999999+00' ;; '1970-01-01 00:00:00+00' ;; '1969-12-31 23:59:59.5+00'
'2021-06-15 13:00:00+02'
"""),
    ),
    "o1": ("BOOLEAN", "BOOLEAN", each(r"""true ;; false""")),
    "o2": ("BOOLEAN", "BOOLEAN", each(r"""true ;; false""")),
    "l1": ("INTEGER[]", "INTEGER[]", each(r"""[] ;; [1] ;; [1, NULL, 3] ;; [5, 4, 3, 2, 1] ;; [NULL]""")),
    "l2": ("VARCHAR[]", "VARCHAR[]", each(r"""[] ;; ['a'] ;; ['b', NULL, 'ä']""")),
    "p1": (
        "STRUCT(a INTEGER, b VARCHAR)",
        "STRUCT(a INTEGER, b VARCHAR)",
        each(r"""
{'a': 1, 'b': 'x'} ;; {'a': NULL, 'b': ''}
"""),
    ),
    "x1": (
        "UUID",
        "VARCHAR",
        each(r"""
'00000000-0000-0000-0000-000000000000' ;; 'f47ac10b-58cc-4372-a567-0e02b2c3d479'
"""),
    ),
    "y1": ("BLOB", "BLOB", each(r"""''::BLOB ;; '\xAA\x00'::BLOB ;; 'abc'::BLOB""")),
    "m1": ("TIME", "TIME", each(r"""'00:00:00' ;; '23:59:59.999999' ;; '12:30:00'""")),
}


def rows(count: int, seed: int = 7) -> list[list[str]]:
    """Rows of SQL values: one all NULL, every awkward value once, then mixed with random ones, some NULL."""
    random = Random(seed)
    found = [["NULL"] * len(COLUMNS)]
    for number in range(count - 1):
        row = []
        for name, (type_, _, values) in COLUMNS.items():
            if number < 40:
                row.append(values[number % len(values)])
            else:
                awkward = random.choice(values)
                row.append(random.choice(["NULL", awkward, awkward, anything(name, type_, random)]))
        found.append(row)
    return found


def anything(name: str, type_: str, random: Random) -> str:
    if type_ in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UINTEGER", "UBIGINT"):
        return str(random.choice((random.randrange(128), -random.randrange(128) if type_[0] != "U" else 5)))
    if type_.startswith("DECIMAL"):
        return f"{random.uniform(-999, 999):.4f}"
    if type_ in ("DOUBLE", "FLOAT"):
        return repr(random.choice((random.uniform(-9, 9), random.gauss(0, 1e9), random.randrange(-999, 999) / 8)))
    if name in ("s1", "s2"):
        return "'" + "".join(random.choice("aabbcX,.%_ \\1$äßΣ🦆\n\t") for _ in range(random.randrange(9))) + "'"
    day = f"{random.randrange(1, 9999):04}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
    time = f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}.{random.randrange(10**6):06}"
    words = {
        "DATE": f"'{day}'",
        "TIMESTAMP": f"'{day} {time}'",
        "TIMESTAMPTZ": f"'{day} {time}+00'",
        "TIME": f"'{time}'",
    }
    return words.get(type_, "NULL")


SIGNS = ("+", "-", "*", "/", "//", "%")
ARITHMETIC = [
    *(
        pair.replace("?", sign)
        for pair in each(r"""
i1 ? i2 ;; i1 ? b2 ;; b1 ? b2 ;; t1 ? k1 ;; t1 ? 1 ;; t1 ? 300 ;; i1 ? 1 ;; 3 ? i2 ;; b1 ? 2 ;; h1 ? b2 ;; h1 ? 2
d1 ? d2 ;; d1 ? 1 ;; 1 ? d1 ;; d1 ? 0.1 ;; d1 ? b2 ;; d2 ? i1 ;; d1 ? h1 ;; d3 ? d2 ;; d3 ? d1 ;; f1 ? f2 ;; f1 ? i2
f1 ? d1 ;; f1 ? 1 ;; 2.5 ? f2 ;; r1 ? r1 ;; r1 ? i2 ;; k1 ? 0.5 ;; u1 ? i1
""")
        for sign in SIGNS
    ),
    *each(r"""
-i1 ;; -d1 ;; -f1 ;; -5 + i1 ;; i1 & i2 ;; i1 | i2 ;; xor(i1, i2) ;; b1 & 255 ;; 100.00 * d1 / d2
t1 + 1::INTEGER ;; k1 * -3::INTEGER ;; coalesce(t1, 5::INTEGER)
1 - d1 * (1 + d2) ;; i1 / 7 ;; (f1 / f2) / f1 ;; d1 / 0 ;; f1 / -0.0
"""),
]
COMPARISONS = [
    *(
        pair.replace("?", sign)
        for pair in each(r"""
i1 ? i2 ;; i1 ? b1 ;; t1 ? 1 ;; i1 ? 2.5 ;; d1 ? d2 ;; d1 ? d3 ;; d1 ? 1 ;; f1 ? f2 ;; f1 ? i1 ;; f1 ? d1 ;; s1 ? s2
s1 ? 'a' ;; dt1 ? dt2 ;; dt1 ? ts1 ;; ts1 ? ts2 ;; tz1 ? ts1 ;; dt1 ? '2020-02-29' ;; ts1 ? '2020-01-31 10:11:12'
o1 ? o2 ;; i1 ? '25' ;; h1 ? b1 ;; u2 ? b1 ;; x1 ? 'F47AC10B-58cc-4372-a567-0e02b2c3d479' ;; y1 ? y1 ;; m1 ? m1
o1 ? 1 ;; r1 ? r1 ;; dt1 ? dt2 + INTERVAL 1 MONTH ;; dt1 - INTERVAL 3 DAY ? dt2 ;; ts1 ? dt2 + INTERVAL 2 YEAR
r1 ? 0.1 ;; d1 ? '1.50' ;; f1 ? '2.5'
""")
        for sign in ("=", "<", "IS DISTINCT FROM")
    ),
    *each(r"""
i1 <> i2 ;; s1 <= s2 ;; f1 >= f2 ;; s1 > s2 ;; i1 IS NOT DISTINCT FROM i2 ;; i1 IS NULL ;; s1 IS NOT NULL
o1 IS TRUE ;; o1 IS NOT FALSE ;; i1 BETWEEN i2 AND 10 ;; d1 NOT BETWEEN 0 AND d2
dt1 BETWEEN '1970-01-01' AND dt2 + INTERVAL '1' YEAR ;; i1 IN (1, 2, NULL) ;; i1 NOT IN (1, 2) ;; s1 IN ('a', s2)
d4 = d3 ;; d4 < d3 ;; d3 <> d4 ;; d4 IS DISTINCT FROM d3 ;; d4 BETWEEN d3 AND 7 ;; d3 IN (5, d4) ;; nullif(d3, d4)
d4 > 1.505 ;; CASE d3 WHEN d4 THEN 1 ELSE 0 END ;; coalesce(d3, d4) ;; greatest(d4, d3)
b1 BETWEEN 9007199254740993 AND 1e17 ;; b1 NOT BETWEEN b2 AND f1 ;; b2 BETWEEN f2 AND 9007199254740991
d1 IN (1, 2.5) ;; o1 AND o2 ;; o1 OR NOT o2 ;; NOT o1 ;; o1 AND NULL ;; dt1 IN ('2020-02-29', dt2)
"""),
]
TEXTS = each(r"""
upper(s1) ;; lower(s1) ;; length(s1) ;; strlen(s1) ;; substring(s1, 2, 2) ;; substring(s1, 0, 2) ;; substring(s1, 2)
substring(s1, i2, 3) ;; substring(s1, -3) ;; substring(s1, -3, 2) ;; substring(s1, strpos(s1, s2) + 1)
substring(s1, strpos(s1, s2)) ;; substring(s1, 2, abs(i2)) ;; substring(s1, 3, 0) ;; left(s1, 2) ;; left(s1, -2)
left(s1, i2) ;; right(s1, 2) ;; right(s1, -1) ;; right(s1, i2) ;; strpos(s1, s2) ;; position('b' IN s1)
instr(s1, 'c') ;; split_part(s1, ',', 2) ;; split_part(s1, 'X', -1) ;; split_part(s1, ',', 9)
string_split(s1, ',') ;; string_split(s1, '.') ;; lpad(s1, 5, 'xy') ;; rpad(s1, 5, 'ä') ;; lpad(s1, i2 % 10, '*')
replace(s1, s2, 'Z') ;; replace(s1, 'a', '') ;; repeat(s1, 3) ;; repeat(s1, 0) ;; repeat(s1, i2 % 4)
starts_with(s1, s2) ;; ends_with(s1, s2) ;; contains(s1, s2) ;; concat(s1, s2) ;; concat(s1, NULL, i1, o1)
concat_ws('-', s1, s2, 'z') ;; concat_ws(s2, s1, s3) ;; s1 || s2 ;; s1 || i1 ;; s1 || d1 ;; s1 || o1 ;; 'x' || dt1
s1 || NULL || s2 ;; trim(s1) ;; ltrim(s1) ;; rtrim(s1) ;; trim(s1, 'xy') ;; ltrim(s1, 'ax') ;; rtrim(s1, 'c ')
translate(s1, 'abX', 'ü-') ;; ascii(s1) ;; unicode(s1) ;; md5(s1) ;; sha256(s1) ;; s1 LIKE s2 ;; s1 NOT LIKE 'a%'
s1 LIKE '%b_' ;; s1 LIKE '%\%' ;; s1 LIKE 'a!_c' ESCAPE '!' ;; s1 LIKE 'a_c' ;; s1 LIKE '%' ;; s1 LIKE ''
s1 LIKE '%two' ;; s1 ILIKE 'A%' ;; s1 ILIKE '%ß%' ;; s1 ILIKE 'Ä%' ;; s1 NOT ILIKE s2 ;; s1 ILIKE s2
s1 ILIKE '%σ%' ;; regexp_matches(s1, '[a-c]+') ;; regexp_matches(s1, '^a.*c$') ;; regexp_matches(s1, 'a|ä')
regexp_matches(s1, '\d+') ;; regexp_matches(s1, '^[^,]*$') ;; regexp_matches(s1, 'e.t')
regexp_matches(s1, '.two') ;; regexp_full_match(s1, '[a-z]+') ;; regexp_full_match(s1, 'a|abc')
regexp_extract(s1, '[a-z]+') ;; regexp_extract(s1, '([a-z])X([a-z])', 2) ;; regexp_extract(s1, '(z)?b', 1)
regexp_replace(s1, '[abc]', '#', 'g') ;; regexp_replace(s1, 'b', 'Q')
regexp_replace(s1, '([a-z]),([a-z])', '\2;\1', 'g') ;; regexp_replace(s1, '([a-z])X', '<\1>')
regexp_replace(s1, '[X,]+', '$') ;; regexp_replace(s1, 'a', '\\', 'g') ;; regexp_matches(s1, '(?:ab)+c{1,2}')
regexp_matches(s1, 'two$') ;; regexp_matches(s1, 'line$')
""")
EXACT = ("t1", "k1", "i1", "i2", "b1", "b2", "h1", "d1", "d2", "d3")
NUMBERS = [
    *crossed("{0}({1})", ("abs", "sign", "floor", "ceil", "trunc"), (*EXACT, "f1", "f2", "r1")),
    *crossed("round({0})", (*EXACT, "f1", "f2")),
    *crossed("round({0}, {1})", (*EXACT, "f1", "f2"), "127"),
    *crossed("round({0}, {1})", ("d1", "d2", "d3", "f1", "f2"), ("-1", "-3")),
    *crossed(
        "{0}({1})", each("sqrt ;; ln ;; log10 ;; log2 ;; log ;; exp ;; isnan ;; isinf ;; isfinite"), ("f1", "d1", "i1")
    ),
    *each(r"""
round(i1 % 1000, -1) ;; round(b1 % 1000, -2) ;; round(t1 // 2, -1) ;; power(f1, f2) ;; power(i1, 2) ;; pow(d1, 0.5)
power(1, f2) ;; power(sign(i1), f1)
i2 ^ 2 ;; pi() ;; mod(i1, i2) ;; @i1 ;; greatest(i1, i2) ;; greatest(i1, d1) ;; greatest(f1, f2, 1) ;; least(s1, s2)
least(i1, NULL, 3) ;; greatest(dt1, dt2) ;; least(dt1, ts1) ;; least(f1, f2) ;; coalesce(i1, 5)
coalesce(t1, i1, 7) ;; coalesce(i1, d1) ;; coalesce(s1, 'none') ;; coalesce(NULL, o1) ;; coalesce(dt1, '2020-01-01')
ifnull(f1, 0) ;; coalesce(l1, [0]) ;; nullif(i1, 25) ;; nullif(i1, 2.5) ;; nullif(s1, '') ;; nullif(d1, 1)
nullif(f1, f2) ;; CASE WHEN o1 THEN i1 ELSE d1 END ;; CASE WHEN o1 THEN 'x' ELSE s1 END
CASE i1 WHEN 25 THEN 'a' WHEN 0 THEN 'b' END ;; CASE WHEN i1 > 0 THEN 1 WHEN i1 < 0 THEN -1 ELSE 0.5 END
if(o1, i1, b1) ;; CASE WHEN o1 THEN dt1 ELSE ts1 END ;; CASE WHEN o1 THEN NULL ELSE 1 END
CASE WHEN i2 <> 0 THEN i1 // i2 END ;; 1 ;; 2147483648 ;; 9223372036854775808 ;; -2147483648 ;; 0.2 ;; 123.456
1e3 ;; 1.5e-7 ;; 'text' ;; 'it''s \ "q"' ;; TRUE ;; NULL ;; DATE '2020-02-29' ;; TIMESTAMP '2020-02-29 01:02:03.5'
[1, 2] ;; ['a', s1] ;; {'a': i1, 'b': 'x'} ;; t1 ;; k1 ;; h1 ;; u1 ;; u2 ;; d3 ;; r1 ;; x1 ;; y1 ;; tz1 ;; m1 ;; l1
l2 ;; p1 ;; l1[1] ;; l1[-1] ;; l1[2] ;; l2[3] ;; l1[0] ;; len(l1) ;; array_length(l2) ;; list_contains(l1, 3)
list_contains(l2, s1) ;; list_contains(l1, NULL) ;; p1.a ;; p1['b'] ;; struct_extract(p1, 'a') ;; {'q': p1}.q.b
generate_series(1, i1 % 4) ;; generate_series(i2 % 3, 2) ;; generate_series(3) ;; generate_series(k1, k1 + 2)
0.12345678901234567890123456789012345678901 ;; 0.1234567890123456789012345678901234567 ;; 00.5 ;; 0001.50
99999999999999999999999999999999999999 ;; 99999999999999999999999999999999999999999
0000000000000000000000000000000012 ;; -100000000000000000000000000000000000000
12345678901234567890123456789012345678.5 ;; 340282366920938463463374607431768211456 ;; 1e400 ;; -1e400 ;; 1e-400
1.7976931348623158e308 ;; 1.8e308 ;; 1e400::DOUBLE ;; 1e308 + i2 ;; f1 < 1e400
170141183460469231731687303715884105727 ;; 170141183460469231731687303715884105728
"""),
]
CASTS = ("CAST", "TRY_CAST")
TYPES = each("""
TINYINT ;; SMALLINT ;; INTEGER ;; BIGINT ;; HUGEINT ;; UINTEGER ;; DECIMAL(9,2) ;; DECIMAL(18,0) ;; DECIMAL(38,6)
DOUBLE ;; FLOAT ;; BOOLEAN ;; VARCHAR ;; DATE ;; TIMESTAMP ;; TIMESTAMPTZ
""")
SOURCES = each("t1 ;; i1 ;; b1 ;; h1 ;; u1 ;; u2 ;; d1 ;; d2 ;; d3 ;; f1 ;; r1 ;; dt1 ;; ts1 ;; tz1 ;; o1 ;; x1")
TOO_WIDE = "CAST(f1 AS DECIMAL(38,6))"
"""Too many units for Spark, which says so."""
SPECIAL = each(
    "nan ;; NaN ;; inf ;; -Infinity ;; +inf ;; 1e39 ;; -1e400 ;; 1e-400 ;;  1.5E-7  ;; .5 ;; -0 ;; 16777217 ;; 0.1"
)
MOMENTS = each(
    "2026-01-02 ;; 2026-01-02 10:00 ;; 2026-01-02T10:00:01.5 ;; 0001-01-01 00:00:00 ;; 9999-12-31 23:59:59.999999"
)
CASTINGS = [
    *(case for case in crossed("{0}({1} AS {2})", CASTS, SOURCES, TYPES) if TOO_WIDE not in case),
    *crossed("{0}(s3 AS {1})", CASTS, ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")),
    *crossed("{0}(s4 AS {1})", CASTS, ("DECIMAL(9,2)", "DECIMAL(18,0)", "DECIMAL(38,6)")),
    *crossed("{0}({1})", CASTS, ("s5 AS DOUBLE", "s5 AS FLOAT", "s6 AS DATE", "s7 AS TIMESTAMP", "s8 AS BOOLEAN")),
    *each("CAST(f2 AS DECIMAL(38,6)) ;; CAST(f1 AS DECIMAL(38,2)) ;; TRY_CAST(f2 AS DECIMAL(4,2))"),
    *each("CAST('5' AS INTEGER) ;; CAST('2.5' AS DECIMAL(5,1)) ;; CAST(x1 AS VARCHAR) ;; CAST(s1 AS VARCHAR)"),
    *crossed("{0}('{1}' AS {2})", CASTS, SPECIAL, ("DOUBLE", "FLOAT")),
    *crossed("{0}('{1}' AS INTEGER)", CASTS, each("7 ;; +7 ;; -0 ;;  42  ;; 007")),
    *crossed("{0}('{1}' AS DECIMAL(4,2))", CASTS, each("7 ;; .5 ;; 1. ;; -0.005 ;; 99.994 ;;  5  ;; -0.001")),
    *crossed("{0}('{1}' AS DATE)", CASTS, each("2026-02-28 ;; 2026-1-5 ;; 0001-01-01 ;; 9999-12-31")),
    *crossed("{0}('{1}' AS {2})", CASTS, MOMENTS, ("TIMESTAMP", "TIMESTAMPTZ")),
    *crossed("{0}('{1}' AS BOOLEAN)", CASTS, each("t ;; TRUE ;; 1 ;; F ;; false ;; 0")),
    *crossed("TRY_CAST('{0}' AS {1})", each("abc ;; x5"), ("INTEGER", "DECIMAL(4,2)", "DOUBLE", "DATE", "TIMESTAMP")),
    *each("TRY_CAST('2026-02-30' AS DATE) ;; TRY_CAST('2026-13-01' AS DATE) ;; TRY_CAST('300' AS TINYINT)"),
    *each("TRY_CAST('1234567' AS DECIMAL(4,2)) ;; TRY_CAST('99.995' AS DECIMAL(4,2)) ;; TRY_CAST('xyz' AS BOOLEAN)"),
    *each("i1 = ' 25 ' ;; d1 > '99.999999' ;; dt1 < '2020-3-1' ;; f1 < 'inf' ;; f1 = 'nan' ;; '255'::UTINYINT"),
]
# Texts that DuckDB reads and Spark does not, or otherwise: Spark must stop, and must not answer NULL either.
ODD_TEXTS = {
    "INTEGER": ["1.5", "1e3", "0x1F", "1_000", ".5", "1."],
    "DECIMAL(9,2)": ["1e2", "1_000.5"],
    "DOUBLE": ["inf", "NaN", "1_000"],
    "DATE": ["2020/01/05", " 2020-01-05 ", "2020-01-05 10:00:00", "epoch"],
    "TIMESTAMP": ["2020-01-05 10:00", "2020-01-05 10:00:00Z", "2020-01-05 10:00:00+02"],
    "BOOLEAN": ["yes", "no"],
}
UNITS = ("year", "quarter", "month", "week", "day")
CLOCK = ("hour", "minute", "second")
PARTS = (*UNITS, *CLOCK, "dow", "isodow", "doy", "isoyear", "millisecond", "microsecond", "epoch")
NAMES = each("""
year ;; quarter ;; month ;; week ;; weekofyear ;; day ;; dayofmonth ;; dayofweek ;; isodow ;; dayofyear
hour ;; minute ;; second ;; epoch ;; epoch_ms ;; epoch_us ;; last_day ;; dayname ;; monthname
""")
STEPS = each("1 MONTH ;; 13 MONTHS ;; 2 QUARTER ;; 4 YEAR ;; 1 DAY ;; 3 WEEKS ;; 36 HOUR ;; 90 MINUTE ;; 61 SECONDS")
FORMATS = each("%Y-%m-%d ;; %H:%M:%S.%f ;; %d/%m/%y it''s %j ;; %B %b %A %a ;; %I %p ;; T%Y")
TIMES = [
    *crossed("extract({0} FROM {1})", PARTS, ("dt1", "ts1", "tz1")),
    *crossed("{0}({1})", NAMES, ("dt1", "ts1")),
    *crossed("date_trunc('{0}', {1})", (*UNITS, *CLOCK), ("dt1", "ts1", "tz1")),
    *crossed("date_diff('{0}', {1})", UNITS, ("dt1, dt2", "ts1, ts2", "dt1, ts2")),
    *crossed("date_diff('{0}', {1})", (*CLOCK, "millisecond", "microsecond"), ("ts1, ts2", "dt1, ts2")),
    *crossed("{0} {1} INTERVAL {2}", ("dt1", "ts1", "tz1"), "+-", STEPS),
    *crossed("strftime({0}, '{1}')", ("dt1", "ts1"), FORMATS),
    *each(r"""
date_part('dow', dt1) ;; date_part('year', ts1) ;; hour(tz1) ;; epoch(tz1) ;; year(tz1) ;; epoch_us(tz1)
dt1 + i2 % 100 ;; dt1 - 1 ;; dt1 - dt2 ;; 1 + dt1 ;; INTERVAL 1 DAY + dt1 ;; ts1 + to_days(3)
ts1 - to_hours(i2 % 100) ;; dt1 + to_months(5) ;; ts1 + to_years(1) ;; ts1 + to_weeks(2) ;; ts1 + to_minutes(7)
ts1 + to_seconds(9) ;; dt1 + INTERVAL (i2 % 50) DAY ;; CAST(dt1 + INTERVAL 1 MONTH AS DATE)
dt1 + INTERVAL 1 MONTH - INTERVAL 1 DAY ;; CAST(date_trunc('month', dt1) AS DATE)
date_trunc('quarter', CAST(ts1 AS DATE)) ;; date_trunc('month', dt1) + INTERVAL 1 MONTH
date_trunc('week', dt1) = dt2 ;; date_add(dt1, INTERVAL 2 DAY) ;; make_date(i1, 2, 3) ;; make_date(2020, i2, 1)
make_date(2020, 2, 30) ;; date(ts1) ;; ts1 AT TIME ZONE 'UTC' ;; tz1 AT TIME ZONE 'UTC'
"""),
]
EXPRESSIONS = [*ARITHMETIC, *COMPARISONS, *TEXTS, *NUMBERS, *CASTINGS, *TIMES]
AGGREGATES = [
    *crossed("{0}({1})", ("sum", "avg"), each("t1 ;; i1 ;; h1 ;; d1 ;; d2 ;; f3 ;; u1 ;; u2 ;; b1")),
    *crossed(
        "{0}({1})",
        ("min", "max"),
        each("i1 ;; h1 ;; d1 ;; f1 ;; s1 ;; dt1 ;; ts1 ;; tz1 ;; o1 ;; x1 ;; y1 ;; m1 ;; r1"),
    ),
    *crossed(
        "{0}({1})", ("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"), ("i2", "d2", "f3")
    ),
    *each(r"""
count(*) ;; count(s1) ;; count(DISTINCT s1) ;; count(DISTINCT (i1, s1)) ;; count(DISTINCT f1) ;; sum(o1::INTEGER)
sum(o1) ;; sum(DISTINCT i2) ;; avg(DISTINCT i2) ;; mean(i2) ;; bool_and(o1) ;; bool_or(o1) ;; count_if(o1)
count_if(i1 > 0) ;; median(i2) ;; median(f3) ;; quantile_cont(i1, 0.3) ;; quantile_cont(f3, 0.9)
quantile_disc(i1, 0.3) ;; quantile_disc(s1, 0.5) ;; quantile_disc(d1, 0) ;; quantile(dt1, 1)
quantile_disc(f1, 0.75) ;; list(i1 ORDER BY n) ;; array_agg(s1 ORDER BY i2 DESC, n)
list(d1 ORDER BY s1 NULLS FIRST, n DESC) ;; list(DISTINCT s1 ORDER BY s1) ;; list(DISTINCT i1 ORDER BY i1 DESC)
list(i1 ORDER BY n) FILTER (WHERE o1) ;; string_agg(s1, ',' ORDER BY n) ;; string_agg(s1, '; ' ORDER BY f1 DESC, n)
string_agg(DISTINCT s2, '' ORDER BY s2) ;; list(p1 ORDER BY n) ;; bit_and(i1) ;; bit_or(b1) ;; bit_xor(t1)
sum(i1) FILTER (WHERE o1) ;; avg(d1) FILTER (WHERE i1 > 0) ;; count(*) FILTER (WHERE o1 AND o2)
count(DISTINCT s1) FILTER (WHERE o1) ;; min(s1) FILTER (WHERE false) ;; sum(d2 * (1 - d2)) ;; sum(i2) * 2
sum(d1) * 0.0001000000 ;; 100.00 * sum(d1) / sum(d2) ;; 0.2 * avg(i2) ;; CAST(sum(i1) AS BIGINT)
max(s1 || '{over}') ;; string_agg(s1, '{over}' ORDER BY n) ;; min(s1 || '{over}') FILTER (WHERE s1 <> '{over}{0}')
sum(d1) > sum(d2) ;; sum(i2 * 0.01) > 0.125
sum(i1) / count(*) ;; max(t1) / min(i1) ;; coalesce(sum(i1), 0) ;; sum(CASE WHEN o1 THEN 1 ELSE 0 END)
"""),
]
WINDOWS = each(r"""
row_number() OVER (PARTITION BY g ORDER BY n) ;; rank() OVER (PARTITION BY g ORDER BY i2)
dense_rank() OVER (PARTITION BY g ORDER BY i2 DESC) ;; rank() OVER (ORDER BY s1 DESC NULLS FIRST)
rank() OVER (ORDER BY f1, s2) ;; rank() OVER (ORDER BY s1) ;; rank() OVER (ORDER BY f1 DESC)
percent_rank() OVER (PARTITION BY g ORDER BY i2) ;; cume_dist() OVER (PARTITION BY g ORDER BY i2)
ntile(4) OVER (PARTITION BY g ORDER BY n) ;; lag(i1) OVER (PARTITION BY g ORDER BY n)
lag(i1, 2, 0) OVER (PARTITION BY g ORDER BY n) ;; lead(s1, 1, 'end') OVER (ORDER BY n)
lag(i1, 1, 2.5) OVER (ORDER BY n) ;; lag(d1, 1, 0) OVER (ORDER BY n)
lag(i1 IGNORE NULLS) OVER (PARTITION BY g ORDER BY n) ;; first_value(i1) OVER (PARTITION BY g ORDER BY n)
last_value(i1) OVER (PARTITION BY g ORDER BY n)
last_value(s1 IGNORE NULLS) OVER (PARTITION BY g ORDER BY n ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)
nth_value(i1, 3) OVER (PARTITION BY g ORDER BY n)
nth_value(s1, 2) OVER (PARTITION BY g ORDER BY n ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
sum(i2) OVER (PARTITION BY g) ;; sum(i2) OVER (PARTITION BY g ORDER BY n)
sum(i2) OVER (PARTITION BY g ORDER BY i1) ;; avg(i2) OVER (ORDER BY n ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING)
count(*) OVER () ;; count(s1) OVER (PARTITION BY g ORDER BY n ROWS UNBOUNDED PRECEDING)
max(s1) OVER (PARTITION BY g ORDER BY n ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
min(d1) OVER (PARTITION BY o1, g) ;; avg(d1) OVER (PARTITION BY g) ;; sum(d1) OVER (PARTITION BY f1)
count(*) OVER (PARTITION BY s1) ;; count(*) OVER (PARTITION BY lower(s1))
sum(f3) OVER (PARTITION BY g ORDER BY n) ;; stddev(f3) OVER (PARTITION BY g)
bool_or(o1) OVER (PARTITION BY g ORDER BY n) ;; max(s1 || '{over}') OVER (PARTITION BY s2 || '{over}')
rank() OVER (PARTITION BY g) ;; dense_rank() OVER () ;; percent_rank() OVER (PARTITION BY g)
cume_dist() OVER (PARTITION BY g ROWS 1 PRECEDING)
row_number() OVER (PARTITION BY g ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
rank() OVER (ORDER BY i2 ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) ;; ntile(3) OVER (ORDER BY n ROWS 2 PRECEDING)
cume_dist() OVER (ORDER BY i2 RANGE BETWEEN CURRENT ROW AND CURRENT ROW)
lag(i1) OVER (PARTITION BY g ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW)
lead(i1 IGNORE NULLS) OVER (ORDER BY n ROWS BETWEEN CURRENT ROW AND CURRENT ROW)
sum(i2) OVER (PARTITION BY g RANGE BETWEEN CURRENT ROW AND CURRENT ROW)
count(i2) OVER (RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
sum(i2) OVER (ORDER BY i1 RANGE BETWEEN CURRENT ROW AND CURRENT ROW)
sum(i2) OVER (ORDER BY n ROWS BETWEEN 3000000000 PRECEDING AND 3000000000 FOLLOWING)
sum(i2) OVER (ORDER BY n ROWS BETWEEN 2 FOLLOWING AND 2147483647 FOLLOWING)
sum(i2) OVER (ORDER BY n ROWS BETWEEN 2 PRECEDING AND 2 PRECEDING)
count(*) OVER (ORDER BY n ROWS BETWEEN 0 FOLLOWING AND 0 FOLLOWING)
ntile(3000000000) OVER (ORDER BY n) ;; nth_value(i1, 3000000000) OVER (ORDER BY n)
lag(i1, 3000000000, 7) OVER (ORDER BY n) ;; lead(i1, -3000000000) OVER (ORDER BY n) ;; lag(i1, -1) OVER (ORDER BY n)
""")
QUERIES = each(r"""
SELECT l1, l2, p1, count(*) AS c FROM v GROUP BY l1, l2, p1
SELECT DISTINCT l1, p1 FROM v
SELECT l2 FROM v EXCEPT ALL SELECT l2 FROM v WHERE o1
SELECT a.n, b.n AS m FROM v AS a JOIN v AS b ON a.l1 IS NOT DISTINCT FROM b.l1 AND a.p1 IS NOT DISTINCT FROM b.p1
SELECT DISTINCT ON (g) g, n, s1 FROM v ORDER BY g, s2 DESC, n
SELECT n, s1 FROM v QUALIFY row_number() OVER (PARTITION BY g ORDER BY n) < 9 ORDER BY s1 DESC, n LIMIT 7
SELECT n, unnest(CASE WHEN len(l1) > 0 THEN l1 ELSE [NULL] END) AS e FROM v
SELECT f1, count(*) AS c FROM v GROUP BY f1
SELECT f1, f2, s1 FROM v UNION SELECT f2, f1, s2 FROM v
SELECT DISTINCT d1, s1, dt1 FROM v
SELECT lower(s1) AS k, upper(s1) AS u, count(*) AS c, sum(i2) AS t FROM v GROUP BY lower(s1), upper(s1)
SELECT i1 FROM v UNION ALL SELECT d1 FROM v UNION ALL SELECT 1 FROM v
SELECT i1 FROM v EXCEPT ALL SELECT i2 FROM v
SELECT s1 FROM v INTERSECT SELECT s2 FROM v
SELECT dt1 FROM v EXCEPT SELECT ts1 FROM v
SELECT n, s1 FROM v ORDER BY s1, n LIMIT 20
SELECT n, i1 FROM v ORDER BY i1 DESC, n LIMIT 20 OFFSET 5
SELECT n, f1 FROM v ORDER BY f1 DESC NULLS FIRST, n LIMIT 50
SELECT a.n, b.n AS m FROM v a JOIN v b ON a.f1 = b.f2 AND a.n < b.n
SELECT a.n, b.n AS m FROM v a LEFT JOIN v b ON a.i1 = b.d1 AND b.o1
SELECT a.n FROM v a SEMI JOIN v b ON a.s1 = b.s2
SELECT a.n FROM v a ANTI JOIN v b ON a.i1 = b.b2
SELECT coalesce(a.n, b.n) AS n FROM (SELECT * FROM v WHERE o1) a FULL JOIN (SELECT * FROM v WHERE o2) b ON a.n = b.n
SELECT n, unnest(l1) AS e FROM v
SELECT g, unnest(l1) AS e, count(*) OVER (PARTITION BY g) AS c FROM v
SELECT n, unnest(l2) AS e FROM v QUALIFY row_number() OVER (PARTITION BY g ORDER BY n) = 2
SELECT DISTINCT unnest(l1) AS e, rank() OVER (ORDER BY g) AS r FROM v QUALIFY r < 50 ORDER BY e DESC, r LIMIT 5
SELECT n, t.e FROM v, UNNEST(l1) AS t(e)
SELECT n, t.e FROM v LEFT JOIN UNNEST(l2) AS t(e) ON TRUE
SELECT g, o1, count(*) AS c, sum(d1) AS s FROM v GROUP BY ROLLUP (g, o1)
SELECT g, o1, count(*) AS c FROM v GROUP BY CUBE (g, o1)
SELECT g, o1, count(*) AS c FROM v GROUP BY GROUPING SETS ((g), (o1), ())
SELECT g, sum(i2) AS s FROM v GROUP BY g HAVING count(*) > 10 AND sum(i2) > 5
WITH c AS (SELECT g, max(i2) AS m FROM v GROUP BY g) SELECT v.n, c.m FROM v JOIN c ON v.g = c.g AND v.i2 = c.m
SELECT n FROM v WHERE i2 > (SELECT avg(i2) FROM v)
SELECT n FROM v WHERE i2 IN (SELECT t1 FROM v)
SELECT n FROM v AS a WHERE EXISTS (SELECT 1 FROM v AS b WHERE b.i1 = a.i2 AND b.o1)
SELECT n, g FROM v QUALIFY row_number() OVER (PARTITION BY g ORDER BY n DESC) = 1
SELECT count(*) AS c, sum(i1) AS s, avg(d1) AS a, max(s1) AS m, bool_and(o1) AS b FROM v WHERE false
SELECT g, k, count(*) AS c FROM (SELECT g, i1 // 10 AS k FROM v) AS q GROUP BY ALL
SELECT n, n IN (SELECT g FROM v) AS a, g IN (SELECT i2 FROM v) AS b, g NOT IN (SELECT i2 FROM v) AS c FROM v
SELECT n, g IN (SELECT i2 FROM v WHERE i2 > 0) AS a, g IN (SELECT i2 FROM v WHERE false) AS b FROM v
SELECT n, NOT (g IN (SELECT t1 FROM v)) AS a, d1 IN (SELECT i1 FROM v) AS b, NULL IN (SELECT g FROM v) AS c FROM v
SELECT n, (f1 NOT IN (SELECT f2 FROM v WHERE f2 IS NOT NULL)) IS NULL AS a, 'a' IN (SELECT s1 FROM v) AS b FROM v
SELECT n FROM v WHERE (i1 IN (SELECT g FROM v)) IS NULL
SELECT n FROM v WHERE coalesce(n IN (SELECT g FROM v), true)
SELECT n FROM v WHERE NOT coalesce(NOT (n IN (SELECT g FROM v)), false) OR o1
SELECT n FROM v WHERE NOT (n IN (SELECT g FROM v) AND o1)
SELECT n FROM v WHERE n NOT IN (SELECT g FROM v WHERE g > 2) AND i1 IN (SELECT t1 FROM v) OR NOT (i2 IN (SELECT 5))
SELECT n FROM v WHERE i2 NOT IN (SELECT g FROM v) OR o2
SELECT n FROM v WHERE i2 NOT IN (SELECT g FROM v WHERE false)
SELECT n FROM v WHERE NOT (i2 NOT IN (SELECT t1 FROM v) OR o1)
SELECT g, bool_or(n IN (SELECT g FROM v)) AS a, bool_and(i1 NOT IN (SELECT i2 FROM v)) AS b FROM v GROUP BY g
SELECT g IN (SELECT i2 FROM v WHERE i2 < 4) AS b, count(*) AS c FROM v GROUP BY 1
SELECT n IN (SELECT g FROM v) AS b, o1, count(*) AS c FROM v GROUP BY 1, 2
SELECT count(*) FILTER (WHERE n IN (SELECT g FROM v)) AS a FROM v
SELECT count(*) FILTER (WHERE n NOT IN (SELECT g FROM v)) AS a, sum(n) FILTER (WHERE i1 NOT IN (SELECT 5)) AS b FROM v
SELECT count(*) FILTER (WHERE (n NOT IN (SELECT g FROM v)) IS NULL) AS a FROM v
SELECT g, count(*) AS c FROM v GROUP BY g HAVING (sum(i2) IN (SELECT i1 FROM v)) IS NULL
SELECT g, sum(t1) IN (SELECT g FROM v) AS c FROM v GROUP BY g
SELECT g, CASE WHEN max(t1) NOT IN (SELECT 127) THEN 1 ELSE 2 END AS d FROM v GROUP BY g
SELECT n, rank() OVER (ORDER BY n IN (SELECT g FROM v)) AS r FROM v
SELECT n, rank() OVER (ORDER BY n) IN (SELECT g FROM v) AS r FROM v
SELECT n FROM v QUALIFY (row_number() OVER (ORDER BY n) IN (SELECT g FROM v)) IS NULL
SELECT n FROM v QUALIFY row_number() OVER (ORDER BY n) NOT IN (SELECT 5) AND n NOT IN (SELECT 7)
SELECT DISTINCT ON (b) n IN (SELECT g FROM v) AS b, n FROM v ORDER BY b, n
SELECT a.n, b.n AS m FROM v a LEFT JOIN v b ON a.n = b.n AND b.i1 NOT IN (SELECT g FROM v)
SELECT a.n, b.n AS m FROM v a JOIN v b ON a.n = b.n AND (b.n IN (SELECT g FROM v)) IS NULL
SELECT a.n FROM v a ANTI JOIN v b ON a.n = b.n AND (b.n IN (SELECT g FROM v)) IS NULL
SELECT a.n, b.n AS m FROM v a LEFT JOIN v b ON a.n = b.n AND b.i1 NOT IN (SELECT a.g FROM v a WHERE a.i2 = b.i2)
WITH c AS (SELECT g AS k FROM v) SELECT n, n IN (SELECT k FROM c) AS b FROM v
SELECT n, n IN (SELECT g FROM v UNION ALL SELECT i2 FROM v) AS a, n IN (SELECT max(g) FROM v GROUP BY i2) AS b FROM v
SELECT n, g IN (SELECT i2 FROM v WHERE i2 NOT IN (SELECT t1 FROM v WHERE t1 > 2)) AS a FROM v
SELECT n, i1 IN (SELECT b.i2 FROM v b WHERE b.g = a.g) AS x FROM v a
SELECT n, i1 NOT IN (SELECT b.i2 FROM v b WHERE b.g = a.i2) AS x FROM v a
SELECT n, i1 IN (SELECT b.i2 FROM v b WHERE b.n < a.g AND b.i2 > 0) AS x FROM v a
SELECT n FROM v a WHERE (i1 IN (SELECT b.i2 FROM v b WHERE b.g = a.g)) IS NULL
SELECT n FROM v a WHERE NOT (i1 IN (SELECT b.i2 FROM v b WHERE b.g = a.g) AND o1)
SELECT n FROM v a WHERE i1 NOT IN (SELECT b.i2 FROM v b WHERE b.n < a.g)
SELECT n, t1 IN (SELECT max(b.d1) FROM v b WHERE b.g = a.i2) AS x FROM v a
SELECT n, g IN (SELECT DISTINCT b.t1 + a.g FROM v b WHERE b.o1) AS x FROM v a
SELECT g, bool_or(i1 IN (SELECT b.i2 FROM v b WHERE b.g = a.g)) AS x FROM v a GROUP BY g
SELECT i1 IN (SELECT b.i2 FROM v b WHERE b.g = a.g) AS x, count(*) AS c FROM v a GROUP BY 1
SELECT g, count(*) AS c FROM v a GROUP BY g HAVING (g IN (SELECT b.i2 FROM v b WHERE b.g = a.g)) IS NULL
SELECT n, (SELECT count(*) FROM v b WHERE (b.i1 IN (SELECT g FROM v)) IS NULL) AS c FROM v
SELECT "{over}", max(q."{0}") AS "{over}{over}" FROM (SELECT g AS "{over}", n AS "{0}" FROM v) AS q GROUP BY ALL
""")

# ---------------------------------------------------------------- what is not let through, or known to be so
_NUMBER_TYPES = [type_ for type_ in TYPES if type_ not in ("VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMPTZ")]
_TIME_TYPES = ["DATE", "TIMESTAMP", "TIMESTAMPTZ"]
_REFUSED_CASTS = {
    **dict.fromkeys(("t1", "i1", "b1", "h1", "u1", "u2", "d1", "d2", "d3"), _TIME_TYPES),
    "f1": ["HUGEINT", "UINTEGER", "VARCHAR", *_TIME_TYPES],
    "r1": ["HUGEINT", "UINTEGER", "VARCHAR", "DECIMAL(9,2)", "DECIMAL(18,0)", "DECIMAL(38,6)", *_TIME_TYPES],
    "dt1": _NUMBER_TYPES,
    "ts1": _NUMBER_TYPES,
    "tz1": [*_NUMBER_TYPES, "VARCHAR"],
    "o1": ["DECIMAL(9,2)", "DECIMAL(18,0)", "DECIMAL(38,6)", *_TIME_TYPES],
    "x1": [*_NUMBER_TYPES, *_TIME_TYPES],
}
REFUSED = {
    *(case for column, types in _REFUSED_CASTS.items() for case in crossed("{0}({1} AS {2})", CASTS, [column], types)),
    *crossed("u1 {0} i1", SIGNS),
    *each(
        "170141183460469231731687303715884105727 ;; 170141183460469231731687303715884105728"
        " ;; -100000000000000000000000000000000000000"
    ),
    *each("h1 // b2 ;; h1 // 2 ;; d1 % h1 ;; r1 / r1 ;; r1 // r1 ;; r1 / i2 ;; r1 // i2"),
}
UNTYPED = {"NULL", "s1 || NULL || s2"}
"""DuckDB names a type for what is always NULL."""
ANSWERED = {"i1 % i2", "mod(i1, i2)"}
"""Where Spark has an answer and DuckDB stops: the least integer modulo -1 is 0."""
