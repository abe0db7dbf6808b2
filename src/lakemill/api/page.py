"""`/docs`: the API's description as a page that needs nothing but itself, also in a network that reaches nobody.

Endpoints by their tags, with parameters, bodies, answers and examples, then the forms that they name; made from the
same OpenAPI description that programs get, in one go, as HTML without scripts. Whatever is in the description is text
here: it is escaped, and the page's policy lets nothing run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
_REF = "#/components/schemas/"
_METHODS = ("get", "post", "put", "patch", "delete")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "minItems", "pattern")
_PROBLEM = "application/problem+json"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --link: #06c }
@media (prefers-color-scheme: dark) { :root { --link: #6bf } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
h2 { margin: 2.5rem 0 .5rem; text-transform: capitalize } h3 { margin: 1.2rem 0 .3rem; font-size: 1rem }
code, pre { font: .88em ui-monospace, monospace } pre { background: var(--soft); padding: .6rem; overflow-x: auto }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .4rem 0; padding: .4rem .8rem }
summary { cursor: pointer } summary b { display: inline-block; min-width: 4.2rem } summary span { opacity: .7 }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .25rem .5rem }
td, th { border-top: 1px solid var(--line) } td:first-child { white-space: nowrap } nav a { margin-right: 1rem }
"""


def page(described: Mapping[str, Any]) -> str:
    """The whole page."""
    title = f"{escape(described['info']['title'])} {escape(described['info']['version'])}"
    tags: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method in (one for one in _METHODS if one in methods):
            tag = (methods[method].get("tags") or ["other"])[0]
            tags.setdefault(tag, []).append("".join(_endpoint(path, method, methods[method])))
    menu = "".join(f'<a href="#about-{_anchor(tag)}">{escape(tag)}</a>' for tag in tags)
    forms = described.get("components", {}).get("schemas", {})
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>',
        f"<h1>{title}</h1><p>{_words(described['info'].get('description', ''))}</p>",
        "<p>Send a key as <code>Authorization: Bearer …</code> or as <code>X-API-Key: …</code>.",
        'The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
        f'<nav>{menu}<a href="#forms">forms</a></nav>',
        *(f'<h2 id="about-{_anchor(tag)}">{escape(tag)}</h2>{"".join(made)}' for tag, made in tags.items()),
        '<h2 id="forms">forms</h2>',
        *("".join(_form(name, forms[name])) for name in sorted(forms, key=_short)),
        "</body></html>",
    ]
    return "\n".join(parts)


def _endpoint(path: str, method: str, told: Mapping[str, Any]) -> Iterator[str]:
    about = told.get("description") or told.get("summary") or ""
    name = told.get("operationId", f"{method} {path}")
    yield f'<details id="{_anchor(name)}"><summary><b>{method.upper()}</b> <code>{escape(path)}</code>'
    yield f" <span>{_words(about.splitlines()[0] if about else '')}</span></summary>"
    rest = "\n".join(about.splitlines()[1:]).strip()
    yield f"<p>{_words(rest)}</p>" if rest else ""
    if given := told.get("parameters"):
        rows = [
            (f"{escape(one['name'])} <small>{one['in']}</small>", one["schema"], one.get("required", False))
            for one in given
        ]
        yield f"<h3>Parameters</h3>{_table(rows)}"
    for media, content in told.get("requestBody", {}).get("content", {}).items():
        yield f"<h3>Body, <code>{escape(media)}</code></h3>"
        yield from _content(content)
    yield "<h3>Answers</h3><table>"
    problems = []
    for status, answer in sorted(told["responses"].items()):
        if _PROBLEM in answer.get("content", {}):
            problems.append(status)
            continue
        kinds = ", ".join(
            f"<code>{escape(media)}</code> {_type(content['schema']) if 'schema' in content else ''}"
            for media, content in answer.get("content", {}).items()
        )
        yield f"<tr><td>{escape(status)}</td><td>{_words(answer['description'])}</td><td>{kinds}</td></tr>"
    if problems:
        yield f"<tr><td>else</td><td>{', '.join(problems)}</td><td>{_link('Problem')}</td></tr>"
    yield "</table></details>"


def _content(content: Mapping[str, Any]) -> Iterator[str]:
    schema = content.get("schema", {})
    if "properties" in schema:
        yield _table(_fields(schema))
    else:
        yield f"<p>{_type(schema)} {_words(schema.get('description', ''))}</p>"
    for example in [*schema.get("examples", ()), *content.get("examples", {}).values()]:
        yield _example(example)


def _form(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="{_anchor(name)}"><h3>{escape(_short(name))}</h3>'
    yield f"<p>{_words(schema.get('description', ''))}</p>"
    yield _table(_fields(schema)) if schema.get("properties") else f"<p>{_type(schema)}</p>"
    yield from map(_example, schema.get("examples", ()))
    yield "</section>"


def _fields(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], bool]]:
    needed = schema.get("required", ())
    return [(escape(name), one, name in needed) for name, one in schema["properties"].items()]


def _table(rows: list[tuple[str, Mapping[str, Any], bool]]) -> str:
    made = []
    for name, schema, needed in rows:
        told = [_words(schema.get("description", ""))]
        if "default" in schema and schema["default"] is not None:
            told.append(f"Default <code>{escape(json.dumps(schema['default']))}</code>.")
        told += [
            f"Such as <code>{escape(json.dumps(one, ensure_ascii=False))}</code>." for one in schema.get("examples", ())
        ]
        mark = " <small>required</small>" if needed else ""
        about = " ".join(filter(None, told))
        made.append(f"<tr><td><code>{name}</code>{mark}</td><td>{_type(schema)}</td><td>{about}</td></tr>")
    return f"<table>{''.join(made)}</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """What a value is, in a few words."""
    if not schema:
        return "anything"
    if ref := schema.get("$ref"):
        return _link(ref.removeprefix(_REF))
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(_type(one) for one in schema[word])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " | ".join(f"<code>{escape(json.dumps(one))}</code>" for one in values)
    kind = str(schema.get("format") or schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(inner := schema.get("additionalProperties"), Mapping):
        return f"object of {_type(inner)}"
    limits = ", ".join(f"{word} {schema[word]}" for word in _LIMITS if word in schema)
    return escape(kind) + (f" <small>{escape(limits)}</small>" if limits else "")


def _example(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"<pre>{escape(text)}</pre>"


def _link(name: str) -> str:
    return f'<a href="#{_anchor(name)}">{escape(_short(name))}</a>'


def _short(name: str) -> str:
    """Without the module that Python prefixes where two have the name."""
    return name.rpartition("__")[2]


def _anchor(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name)


def _words(text: str) -> str:
    """Plain text with `code`."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
