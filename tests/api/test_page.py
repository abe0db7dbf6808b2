"""/docs: all of the description, for people, with nothing from elsewhere and nothing that runs."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from lakemill.api.page import page
from tests.api.conftest import Api

VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Whether tags are closed as they were opened, and what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open += [] if tag in VOID else [tag]
        for name, value in attrs:
            assert name in ("href", "id", "lang", "charset", "name", "content"), name
            {"href": self.links, "id": self.ids}.get(name, []).append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_has_every_endpoint_and_needs_nobody(api: Api) -> None:
    answer = api.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    found = Outline(answer.text)
    assert not found.tags & {"script", "link", "img", "iframe", "object", "form", "base"}
    assert not re.search(r"url\(|@import", answer.text)
    assert {link for link in found.links if not link.startswith("#")} == {"openapi.json"}
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert len(set(found.ids)) == len(found.ids)
    described = api.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            assert f"<b>{method.upper()}</b> <code>{path}</code>" in answer.text
            for one in told.get("parameters", ()):
                assert f"<code>{one['name']} <small>{one['in']}</small></code>" in answer.text
    for name in described["components"]["schemas"]:
        assert name in found.ids


def test_whatever_is_described_is_text() -> None:
    evil = "<script>alert(1)</script>`<b>`"
    schema = {"properties": {evil: {"type": "string", "description": evil, "default": evil, "examples": [evil]}}}
    operation = {
        "tags": [evil],
        "description": f"{evil}\n\n{evil}",
        "parameters": [{"name": evil, "in": "query", "schema": {"enum": [evil], "pattern": evil}}],
        "requestBody": {"content": {evil: {"schema": {**schema, "examples": [evil, {evil: evil}]}}}},
        "responses": {
            "200": {"description": evil, "content": {evil: {"schema": {"$ref": f"#/components/schemas/{evil}"}}}}
        },
    }
    described = {
        "info": {"title": evil, "version": evil, "description": evil},
        "paths": {f"/{evil}": {"post": operation}},
        "components": {"schemas": {evil: {**schema, "description": evil}}},
    }
    text = page(described)
    assert "<script" not in text
    assert "<b>`" not in text
    Outline(text)
