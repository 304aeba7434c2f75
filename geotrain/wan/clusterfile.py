"""Writing what was measured into a cluster file's link, and leaving every other character of it as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from geotrain import yaml_edit
from geotrain.cluster import Cluster, Link
from geotrain.errors import InputError
from geotrain.units import format_rate, format_seconds, format_traffic
from geotrain.wan.figures import Probe, Way

_ALIKE = 1.1
"""Directions that differ by less are one link."""
_FIELDS = ("rtt", "pair_cap", "tcp_window")

Fields = dict[str, str]
Direction = tuple[str, str]


def write_link(path: Path, probe: Probe, here: str, there: str) -> list[str]:
    """Write the probe's figures for the link between two data centers; returns what was written, a line each."""
    before = Cluster.load(path)
    for name in (here, there):
        before.datacenter(name)
    if here == there:
        raise InputError(f"--link is {here},{there} and must name two data centers")
    changes = _changes(before, probe, here, there)

    def edit(text: str) -> str:
        for directions, fields in changes:
            text = _edited(text, directions, fields)
        return text

    rows = "; ".join(f"{_named(directions)} {yaml_edit.flow(fields)}" for directions, fields in changes)
    yaml_edit.change(path, edit, lambda edited: _as_meant(path, before, edited, changes), by_hand=f"wan.links: {rows}")
    return [f"{_named(directions)}: {yaml_edit.flow(fields)[1:-1]}" for directions, fields in changes]


def _changes(cluster: Cluster, probe: Probe, here: str, there: str) -> list[tuple[list[Direction], Fields]]:
    """Which entries say what: one for both directions where they are alike, unless the file has them apart."""
    ways = {(here, there): probe.there, (there, here): probe.back}
    one_way = any(link.between is None and link.directions[0] in ways for link in cluster.wan.links)
    pairs = [(probe.there.cap, probe.back.cap), (probe.there.single, probe.back.single)]
    if not one_way and all(max(pair) <= _ALIKE * min(pair) for pair in pairs):
        # A plan must not count on more than the weaker direction gives.
        weaker = {name: min(getattr(way, name) for way in ways.values()) for name in ("cap", "single")}
        return [(list(ways), _fields(probe.rtt_s, weaker["cap"], weaker["single"]))]
    return [([direction], _fields(probe.rtt_s, *_rates(way))) for direction, way in ways.items()]


def _rates(way: Way) -> tuple[float, float]:
    return way.cap, way.single


def _fields(rtt_s: float, cap: float, single: float) -> Fields:
    values = (format_seconds(rtt_s), format_rate(cap), format_traffic(single * rtt_s))
    return dict(zip(_FIELDS, values, strict=True))


def _named(directions: list[Direction]) -> str:
    a, b = directions[0]
    return f"between {a} and {b}" if len(directions) > 1 else f"from {a} to {b}"


def _as_meant(path: Path, before: Cluster, text: str, changes: list[tuple[list[Direction], Fields]]) -> bool:
    """Whether the new text says what was measured, and of everything else what it said before."""
    after = Cluster.parse(yaml.safe_load(text), source=path)
    meant = {direction: Link.parse(fields, source=path) for directions, fields in changes for direction in directions}
    names = [dc.name for dc in before.datacenters]
    good = after.datacenters == before.datacenters and after.name == before.name
    for source in names:
        for target in names:
            want = Cluster.link(before, source, target)
            if (new := meant.get((source, target))) is not None:
                want = want.model_copy(update={name: getattr(new, name) for name in new.model_fields_set})
            good = good and (source == target or after.link(source, target).dump() == want.dump())
    return good


def _edited(text: str, directions: list[Direction], fields: Fields) -> str:
    content = yaml.safe_load(text)
    a, b = directions[0]
    entry = {**({"between": [a, b]} if len(directions) > 1 else {"from": a, "to": b}), **fields}
    if not isinstance(wan := content.get("wan"), dict):
        return yaml_edit.put(text, ("wan",), {"links": [entry]})
    if not isinstance(links := wan.get("links"), list):
        return yaml_edit.put(text, ("wan", "links"), [entry])
    number = next((number for number, link in enumerate(links) if _ends(link) == set(directions)), None)
    if number is None:
        return yaml_edit.append(text, ("wan", "links"), entry)
    for key, value in fields.items():
        text = yaml_edit.put(text, ("wan", "links", number, key), value)
    return text


def _ends(link: Mapping[str, Any]) -> set[Direction]:
    """The directions that an entry speaks of."""
    if "between" in link:
        a, b = link["between"]
        return {(a, b), (b, a)}
    return {(link["from"], link["to"])}
