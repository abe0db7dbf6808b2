"""`deploy/`: alerts, dashboard, image and compose file, held to the code as far as that goes without their engines.

Alerts are also given to `promtool` where there is one. Everywhere, each expression is parsed as PromQL, and each metric
and label in it must be one that `telemetry.metrics` declares. No image is built here: the Dockerfile is linted, by
hadolint too, the compose file is parsed, and every command and setting in it must exist.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from lakemill.service_settings import ServiceSettings
from lakemill.settings import ENV_PREFIX, Settings
from lakemill.telemetry import metrics
from lakemill.values import parse_duration

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVICE = {"serve", "scheduler", "worker", "init"}
OF_TARGETS = {"job", "instance"}  # Prometheus gives them to every series
SERIES = {name: metric for metric in metrics.METRICS for name in metric.series}

ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
QUERIES = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("lakemill:")}


# ---------------------------------------------------------------- PromQL
def parts(expression: Any) -> Iterator[Any]:
    found: list[Any] = []
    promql_parser.walk(expression, lambda part: found.append(part))
    return iter(found)


def selectors(expression: Any) -> list[Any]:
    return [part for part in parts(expression) if isinstance(part, promql_parser.VectorSelector)]


def labels_of(series: str) -> set[str]:
    return {*SERIES[series].labels, *OF_TARGETS} | ({"le"} if series.endswith("_bucket") else set())


def mistakes(expression: str) -> list[str]:
    """What is wrong with an expression: not PromQL, or about something that we don't expose."""
    try:
        tree = promql_parser.parse(expression)
    except ValueError as error:
        return [f"not PromQL: {error}"]
    found = []
    for selector in selectors(tree):
        if selector.name not in SERIES:
            found.append(f"no metric {selector.name}")
            continue
        used = {matcher.name for matcher in selector.matchers.matchers}
        found += [f"{selector.name} has no label {label}" for label in sorted(used - labels_of(selector.name))]
    if not selectors(tree):
        found.append("names no metric")
    if found:
        return found
    for part in parts(tree):
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            for selector in selectors(part.expr):
                lacking = set(part.modifier.labels) - labels_of(selector.name)
                found += [f"by ({label}): {selector.name} has no such label" for label in sorted(lacking)]
        if isinstance(part, promql_parser.Call) and part.func.name in ("rate", "increase"):
            gauges = [s.name for s in selectors(part) if SERIES[s.name].kind.__name__ == "Gauge"]
            found += [f"{part.func.name}() of the gauge {name}" for name in gauges]
    return found


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("lakemill_lag_seconds > 1", None),
        ("sum by (job, le) (rate(lakemill_tick_duration_seconds_bucket[5m]))", None),
        ("lakemill_lag_seconds >", "not PromQL"),
        ("rate(lakemill_errors_total)", "not PromQL"),
        ("lakemill_lagg_seconds", "no metric lakemill_lagg_seconds"),
        ("lakemill_tick_duration_seconds", "no metric lakemill_tick_duration_seconds"),
        ('lakemill_lag_seconds{tabel="x"}', "lakemill_lag_seconds has no label tabel"),
        ("max by (worker) (lakemill_lag_seconds)", "by (worker): lakemill_lag_seconds has no such label"),
        ("rate(lakemill_lag_seconds[5m])", "rate() of the gauge lakemill_lag_seconds"),
        ("1 + 1", "names no metric"),
    ],
)
def test_the_checker_itself(expression: str, mistake: str | None) -> None:
    found = mistakes(expression)
    assert (found == []) if mistake is None else found[0].startswith(mistake), found


# ---------------------------------------------------------------- alerts
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert mistakes(rule["expr"]) == []
    if "for" in rule:
        assert promql_parser.parse_duration(rule["for"]).total_seconds() > 0
    assert rule["labels"]["severity"] in ("warning", "critical")
    grouped = [
        set(part.modifier.labels)
        for part in parts(promql_parser.parse(rule["expr"]))
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None
    ]
    for label in re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())):
        assert all(label in labels for labels in grouped), f"the result has no label {label}"


def test_the_alerts_that_were_asked_for() -> None:
    expressions = {rule["alert"]: (" ".join(rule["expr"].split()), rule.get("for")) for rule in RULES}
    assert len(expressions) == len(RULES), "names are unique"
    by = "max by (job, table)"
    assert expressions["LakemillLagHigh"] == (
        f"{by} (lakemill_lag_seconds) > 2 * {by} (lakemill_target_lag_seconds)",
        "5m",
    )
    assert expressions["LakemillRefreshesFail"][0].endswith('(lakemill_refresh_total{status="FAILED"}[15m])) > 3')
    assert expressions["LakemillWorkerDown"] == ("max by (job, worker) (lakemill_worker_up) == 0", "2m")


def test_every_alert_says_what_to_do() -> None:
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/how-to/operations.md#{rule['alert'].lower()}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool; the checks above stand in for it")
def test_promtool_agrees() -> None:
    subprocess.run(["promtool", "check", "rules", DEPLOY / "alerts.yml"], check=True, capture_output=True)


# ---------------------------------------------------------------- dashboard
def plain(query: str) -> str:
    """A query without Grafana's variables, which are no PromQL."""
    return re.sub(r"\$(job|table)\b", ".*", query.replace("$__rate_interval", "5m"))


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_query_of_the_dashboard(title: str, query: str) -> None:
    assert mistakes(plain(query)) == []
    assert "$" not in plain(query)


def test_the_dashboard_shows_everything() -> None:
    named = {selector.name for _, query in QUERIES for selector in selectors(promql_parser.parse(plain(query)))}
    assert {metric.name for metric in metrics.METRICS} == {SERIES[name].name for name in named}


def test_the_dashboard_holds_together() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken), "panels lie on each other"
    assert max(x for x, _ in taken) < 24
    for panel in panels:
        assert panel["title"]
        assert panel["description"]
        for target in panel["targets"]:
            legend = re.findall(r"{{(\w+)}}", target["legendFormat"])
            outermost = re.findall(r"by \(([^)]*)\)", target["expr"])
            assert all(label in grouping for label in legend for grouping in outermost), panel["title"]
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert set(variables) == {"source", "job", "table"}
    for name in ("job", "table"):
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["query"]["query"]).groups()  # type: ignore[union-attr]
        assert label in labels_of(metric)


# ---------------------------------------------------------------- settings and commands
def settings_named(text: str) -> set[str]:
    return set(re.findall(rf"\b{ENV_PREFIX}[A-Z0-9]+__[A-Z0-9_]+", text))


def known_settings() -> set[str]:
    groups = {name: field.annotation for name, field in Settings.model_fields.items() if name != "root"}
    keys = [(group, key) for group, model in groups.items() for key in getattr(model, "model_fields", {})]
    return {f"{ENV_PREFIX}{group}__{key}".upper() for group, key in keys}


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml"])
def test_settings_exist(file: str) -> None:
    named = settings_named((DEPLOY / file).read_text("utf-8"))
    assert named
    assert named <= known_settings()


@pytest.mark.parametrize("name", OURS)
def test_settings_of_a_service_are_valid(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in OURS[name]["environment"].items():
        if variable.startswith(ENV_PREFIX):
            with_defaults = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
            monkeypatch.setenv(variable, re.sub(r"\$\{\w+[^}]*\}", "x", with_defaults))
    assert Settings.load(tmp_path).on_s3


def test_commands_exist() -> None:
    assert {service["command"][0] for service in OURS.values()} == SERVICE
    assert instructions()[-1] == ("CMD", '["serve"]')
    assert instructions()[-2] == ("ENTRYPOINT", '["lakemill"]')


# ---------------------------------------------------------------- the image
def instructions() -> list[tuple[str, str]]:
    """(instruction, its words) with continued lines joined; comments gone."""
    lines = (line for line in (DEPLOY / "Dockerfile").read_text("utf-8").splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(line.split(maxsplit=1)[0], " ".join(line.split()[1:])) for line in joined.splitlines() if line.strip()]


def test_the_image_is_pinned() -> None:
    froms = [words.split() for word, words in instructions() if word == "FROM"]
    assert len(froms) == 2, "what builds is not what runs"
    for image, *_ in froms:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+[\w.-]*", image), image
    installs = [words for word, words in instructions() if word == "RUN" and "pip install" in words]
    assert all("==" in words and "--no-cache-dir" in words for words in installs)
    assert all("--frozen" in words for word, words in instructions() if word == "RUN" and "uv sync" in words)


def test_the_image_runs_without_rights() -> None:
    words = [word for word, _ in instructions()]
    last = words[len(words) - words[::-1].index("FROM") :]
    users = [text for word, text in instructions() if word == "USER"]
    assert users == ["10001:10001"], "a number, so that Kubernetes can see that it is not root"
    assert "RUN useradd --uid 10001 " in " ".join(f"{word} {text}" for word, text in instructions())
    assert {"USER", "WORKDIR", "ENTRYPOINT", "HEALTHCHECK"} <= set(last)
    assert "ADD" not in words


def test_the_image_copies_what_is_there() -> None:
    stages = {words.split()[-1] for word, words in instructions() if word == "FROM" and " AS " in words}
    for words in (shlex.split(text) for word, text in instructions() if word == "COPY"):
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages
        else:
            assert all((ROOT / source).exists() for source in words[:-1]), words


def test_the_image_has_the_class_archive() -> None:
    lines = [f"{word} {words}" for word, words in instructions()]
    made = next(line for line in lines if "-XX:ArchiveClassesAtExit=" in line)
    file = re.search(r"-XX:ArchiveClassesAtExit=(\S+)", made)
    used = next(line for line in lines if line.startswith("ENV SPARK_SUBMIT_OPTS="))
    assert file is not None
    assert f"-XX:SharedArchiveFile={file[1]} " in used
    assert "-Xshare:auto" in used, "one that does not fit is left aside"


def test_hadolint_agrees() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([beside, "--no-color", DEPLOY / "Dockerfile"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_port_is_the_settings() -> None:
    port = ServiceSettings().port
    assert ("EXPOSE", str(port)) in instructions()
    assert any(word == "HEALTHCHECK" and f":{port}/healthz" in words for word, words in instructions())
    assert OURS["api"]["ports"] == [f"127.0.0.1:{port}:{port}"], "on loopback: there is no password on it"


# ---------------------------------------------------------------- compose
def test_services_are_whole() -> None:
    assert set(SERVICES) == {"init", "api", "scheduler", "worker", "postgres", "s3", "bucket", "collector"}
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["collector"]
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[a-z/-]+:\d+\.\d+(\.\d+)?", service["image"]), f"{name}: {service['image']} is not pinned"
        for other, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "test" in SERVICES[other]["healthcheck"]
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert SERVICES[other]["restart"] == "no"
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
    for service in OURS.values():
        assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
        assert service["cap_drop"] == ["ALL"]


def test_a_stop_waits_for_the_work() -> None:
    for service in OURS.values():
        assert parse_duration(service["stop_grace_period"]) > ServiceSettings().stop_grace  # type: ignore[operator]


def test_no_secret_has_a_value() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    for line in text.splitlines():
        if re.search(r"(?i)(password|secret|key)\w*(:|=)", line) and not line.lstrip().startswith("#"):
            assert ":?}" in line, f"a secret with a default: {line.strip()}"


def test_addresses_name_services() -> None:
    environment = OURS["worker"]["environment"]
    assert re.search(r"host=(\w+)", environment["LAKEMILL_LAKE__POSTGRES"])[1] in SERVICES  # type: ignore[index]
    assert re.match(r"http://(\w+):", environment["LAKEMILL_S3__ENDPOINT"])[1] in SERVICES  # type: ignore[index]
    bucket = re.match(r"s3://(\w+)/", environment["LAKEMILL_LAKE__DATA_PATH"])[1]  # type: ignore[index]
    assert f"-name {bucket}'" in SERVICES["bucket"]["command"][0]


def test_the_collector_is_wired() -> None:
    content = yaml.safe_load(COMPOSE["configs"]["collector"]["content"])
    for pipeline in content["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= set(content[part])
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    (named,) = set(re.findall(r"http://(\w+:\d+)", text)) - {"s3:8333"}
    service, port = named.split(":")
    assert SERVICES[service]["profiles"] == ["tracing"]
    protocols = content["receivers"]["otlp"]["protocols"]
    assert protocols["http"]["endpoint"].endswith(f":{port}"), "we speak OTLP over HTTP"
    assert any("--extra tracing" in words and "--extra lineage" in words for _, words in instructions())
