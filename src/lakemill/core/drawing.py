"""A graph for people and programs: text, JSON values, Mermaid.

Pictures of the same value: arrows go from what is read to who reads it. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakemill.core.definition import TargetLag
from lakemill.core.graph import Graph
from lakemill.core.names import QualifiedName


def draw_text(graph: Graph) -> str:
    """A tree below each base table; a table with several sources is drawn in full once, and named after that."""
    roots = [*_bases(graph), *(name for name in graph.order if not graph.nodes[name].sources)]
    lines: list[str] = []
    drawn: set[QualifiedName] = set()
    labels = _labels(graph)
    for root in roots:
        lines.append(labels[root])
        lines += _below(graph, root, "", labels, drawn)
    return "\n".join(lines)


def _below(
    graph: Graph, name: QualifiedName, indent: str, labels: Mapping[QualifiedName, str], drawn: set[QualifiedName]
) -> Iterator[str]:
    consumers = graph.consumers(name)
    for consumer in consumers:
        last = consumer == consumers[-1]
        again = consumer in drawn
        drawn.add(consumer)
        yield f"{indent}{'└─' if last else '├─'} {f'{consumer} ↑' if again else labels[consumer]}"
        if not again:
            yield from _below(graph, consumer, indent + ("   " if last else "│  "), labels, drawn)


def draw_json(graph: Graph) -> dict[str, Any]:
    """Values that ``json`` takes; lags in seconds, None where there is none."""
    lags = graph.effective_lags()
    tables: list[dict[str, Any]] = [{"name": str(name), "kind": "base"} for name in _bases(graph)]
    component = {name: number for number, names in enumerate(graph.components(), 1) for name in names}
    for name, node in graph.nodes.items():
        lag = lags[name]
        tables.append(
            {
                "name": str(name),
                "kind": "dynamic",
                "target_lag": str(node.target_lag),
                "effective_lag": None if lag is None else lag.total_seconds(),
                "active": node.active,
                "component": component[name],
            }
        )
    drawn = [{"from": str(source), "to": str(name)} for source, name in edges(graph)]
    return {"tables": tables, "edges": drawn}


def draw_mermaid(graph: Graph) -> str:
    """A flowchart as Mermaid and most Markdown viewers draw it."""
    ids = {name: f"t{number}" for number, name in enumerate((*_bases(graph), *graph.order))}
    lines, labels = ["flowchart LR"], _labels(graph)
    for name, node_id in ids.items():
        label = _escaped(labels[name])
        lines.append(f'  {node_id}["{label}"]' if name in graph.nodes else f'  {node_id}[("{label}")]')
    lines += [f"  {ids[source]} --> {ids[name]}" for source, name in edges(graph)]
    return "\n".join(lines)


def _bases(graph: Graph) -> list[QualifiedName]:
    return sorted(graph.readers.keys() - graph.nodes.keys())


def edges(graph: Graph) -> Iterator[tuple[QualifiedName, QualifiedName]]:
    """A source, and the dynamic table that reads it."""
    for name, node in graph.nodes.items():
        for source in dict.fromkeys(node.sources):
            yield source, name


def _labels(graph: Graph) -> Mapping[QualifiedName, str]:
    labels = {name: str(name) for name in _bases(graph)}
    for name, lag in graph.effective_lags().items():
        node = graph.nodes[name]
        effective = f" ({TargetLag(lag)})" if node.target_lag.duration is None and lag is not None else ""
        labels[name] = f"{name} · {node.target_lag}{effective}{'' if node.active else ' · not scheduled'}"
    return labels


def _escaped(text: str) -> str:
    """Mermaid's own entities: no quote, bracket or mark-up of a name may end its label."""
    return "".join(char if char.isalnum() or char in " ._()·" else f"#{ord(char)};" for char in text)
