"""The alerts and the dashboard ask for metrics, labels and values that `/metrics` has, and each alert has its line in the runbook."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.backend.monitoring.conftest import Scrape, Scraped
from tests.backend.scripted_agent import Agent, Scene

WORDS = frozenset({"and", "or", "unless", "bool", "offset"})
OF_PROMETHEUS = {"up": {"job", "instance"}}
"""Metrics that Prometheus makes itself."""

ENUMERATED = frozenset({"state", "kind", "outcome", "device", "reason"})
"""Labels whose values are all there from the beginning."""

_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(\(|\{[^}]*\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


def problems(expression: str, scraped: Scraped) -> Iterator[str]:
    """What an expression asks for that is not there."""
    labels: dict[str, dict[str, set[str]]] = {
        name: {label: set() for label in of} for name, of in OF_PROMETHEUS.items()
    }
    for name, found in scraped:
        of_name = labels.setdefault(name, {"job": set(), "instance": set()})
        for label, value in found:
            of_name.setdefault(label, set()).add(value)
    for grouped in _GROUPING.findall(expression):
        for label in filter(None, re.split(r"[\s,]+", grouped)):
            if not any(label in of_name for of_name in labels.values()):
                yield f"no metric has the label {label}"
    rest = re.sub(r"\[[^]]*\]", "", _GROUPING.sub(" ", expression))
    for name, after in _SELECTOR.findall(rest):
        if after == "(" or name in WORDS:
            continue
        if name not in labels:
            yield f"there is no metric {name}"
            continue
        for label, operator, value in _MATCHER.findall(after):
            values = labels[name].get(label)
            if values is None:
                yield f"{name} has no label {label}"
            elif label in ENUMERATED:
                wanted = value.split("|") if operator.endswith("~") else [value]
                yield from (f"{label} of {name} is never {each}" for each in wanted if each not in values)


@pytest.fixture
def scraped(scene: Scene, scrape: Scrape) -> Scraped:
    """All metrics of a platform at work on CPUs and GPUs."""
    work = scene.running()
    series = {"loss": [1.0], "tokens_per_second": [250.0], "mfu": [0.4]}
    work.send(work.batch(metrics=[{"steps": [4], "series": series}]))
    use = {"utilization": 0.7, "memory_bytes": 1, "power_watts": 300.0, "temperature_celsius": 61.0}
    memory = {"memory_bytes": 1, "memory_total_bytes": 2, "disk_bytes": 1, "disk_total_bytes": 2}
    gpus = Agent.join(scene.site, "gpu-1", cpu_slots=0, gpus=1)
    gpus.heartbeat(hardware={"cpu_utilization": 0.5, **memory, "gpus": [{"index": 0, **use}]})
    scene.control.loop.lead_round(sweep=True)
    scene.control.loop.leader.resign()
    return scrape()


def alerts(repository: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load((repository / "infra/prometheus/alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = [rule for group in groups for rule in group["rules"]]
    return found


def panels(repository: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((repository / "infra/grafana/trainwright.json").read_text())[
        "panels"
    ]
    return found


def test_alerts_and_dashboard_ask_for_what_is_there(scraped: Scraped, repository: Path) -> None:
    rules = {rule["alert"]: rule["expr"] for rule in alerts(repository)}
    targets = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in panels(repository)
        for target in panel.get("targets", [])
    }
    assert len(rules) > 15 and len(targets) > 30
    found = {name: list(problems(expression, scraped)) for name, expression in (rules | targets).items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}

    for planted, wrong in {
        "max(trainwright_run)": "there is no metric trainwright_run",
        "rate(trainwright_leases_expired[5m]) > 1": "there is no metric trainwright_leases_expired",
        'trainwright_runs{status="queued"}': "trainwright_runs has no label status",
        'trainwright_runs{state=~"queued|waiting"}': "state of trainwright_runs is never waiting",
        "sum by (machine) (trainwright_node_online)": "no metric has the label machine",
    }.items():
        assert list(problems(planted, scraped)) == [wrong]


def test_each_alert_is_in_the_runbook(repository: Path) -> None:
    rules = alerts(repository)
    names = [rule["alert"] for rule in rules]
    text = (repository / "docs/operations.md").read_text()
    runbook = text[text.index("\n## Alerts\n") :]
    assert re.findall(r"^\| `(\w+)` \|", runbook, re.MULTILINE) == names
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]


def test_the_panels_of_the_dashboard_have_their_own_places(repository: Path) -> None:
    found = panels(repository)
    assert len({panel["id"] for panel in found}) == len(found)
    cells = [
        (x, y)
        for panel in found
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24
