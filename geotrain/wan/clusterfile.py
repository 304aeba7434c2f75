"""Writing what was measured into a cluster file's link, and leaving every other character of it as it is.

The YAML parser says where things stand in the text; only there the text is changed. Afterwards the result is loaded and
must differ from the file in the link's three fields and nothing else.
"""

from pathlib import Path
from typing import Any

import yaml

from geotrain.cluster import Cluster, Link
from geotrain.errors import InputError
from geotrain.files import read_text, write_text
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
    text = read_text(path)
    changes = _changes(before, probe, here, there)
    try:
        for directions, fields in changes:
            text = _edited(text, directions, fields)
        good = _as_meant(path, before, text, changes)
    except (yaml.YAMLError, InputError):
        # An anchor, say, that was in the text replaced.
        good = False
    if not good:
        rows = "; ".join(f"{_named(directions)} {_flow(fields)}" for directions, fields in changes)
        raise InputError(f"{path}: is written in a way that is not changed by itself; write under wan.links: {rows}")
    write_text(path, text)
    return [f"{_named(directions)}: {_flow(fields)[1:-1]}" for directions, fields in changes]


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
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    a, b = directions[0]
    ends = f"between: [{_plain(a)}, {_plain(b)}]" if len(directions) > 1 else f"from: {_plain(a)}, to: {_plain(b)}"
    entry = f"{{{ends}, {_flow(fields)[1:]}"
    wan = _value(root, "wan")
    if not isinstance(wan, yaml.MappingNode):
        return _add(text, root, "wan", "links", entry)
    links = _value(wan, "links")
    if not isinstance(links, yaml.SequenceNode):
        return _add(text, wan, "links", None, entry)
    for link in links.value:
        if isinstance(link, yaml.MappingNode) and _ends(link) == set(directions):
            return _updated(text, link, fields)
    if links.flow_style:
        start = links.start_mark.index + 1
        return f"{text[:start]}{entry}{', ' if links.value else ''}{text[start:]}"
    return _below(text, _last(links), f"{' ' * links.start_mark.column}- {entry}")


def _updated(text: str, link: yaml.MappingNode, fields: Fields) -> str:
    """From the last place in the text to the first, so that the places before stay where they are."""
    missing = {key: value for key, value in fields.items() if _value(link, key) is None}
    if link.flow_style:
        end = link.end_mark.index - 1
        text = f"{text[:end].rstrip(' ,')}{''.join(f', {key}: {value}' for key, value in missing.items())}{text[end:]}"
    elif missing:
        indent = " " * link.start_mark.column
        text = _below(text, _last(link), "\n".join(f"{indent}{key}: {value}" for key, value in missing.items()))
    places = [(node, fields[key.value]) for key, node in link.value if key.value in fields]
    for node, value in sorted(places, key=lambda place: -place[0].start_mark.index):
        text = f"{text[: node.start_mark.index]}{value}{text[node.end_mark.index :]}"
    return text


def _add(text: str, parent: yaml.MappingNode, key: str, inner: str | None, entry: str) -> str:
    """Give a mapping a list `key` (or `key: inner`) with this entry; it has none yet."""
    flow = f"{key}: {{{inner}: [{entry}]}}" if inner else f"{key}: [{entry}]"
    if parent.flow_style:
        end = parent.end_mark.index - 1
        return f"{text[:end].rstrip(' ,')}{', ' if parent.value else ''}{flow}{text[end:]}"
    indent = " " * parent.start_mark.column
    rows = [f"{indent}  {inner}:", f"{indent}    - {entry}"] if inner else [f"{indent}  - {entry}"]
    return _below(text, _last(parent), "\n".join([f"{indent}{key}:", *rows]))


def _below(text: str, node: yaml.Node, rows: str) -> str:
    """The rows, below the line on which a node ends."""
    end = text.find("\n", node.end_mark.index)
    return f"{text.rstrip()}\n{rows}\n" if end < 0 else f"{text[:end]}\n{rows}{text[end:]}"


def _last(node: yaml.Node) -> yaml.Node:
    """The last thing in a block: where that ends, the block does. Marks of blocks themselves lie further down."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return node


def _value(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in node.value if name.value == key), None)


def _ends(link: yaml.MappingNode) -> set[Direction]:
    """The directions that an entry speaks of."""
    between = _value(link, "between")
    if isinstance(between, yaml.SequenceNode):
        a, b = (str(name.value) for name in between.value)
        return {(a, b), (b, a)}
    source, target = _value(link, "from"), _value(link, "to")
    return {(str(source.value), str(target.value))} if source is not None and target is not None else set()


def _flow(fields: Fields) -> str:
    return f"{{{', '.join(f'{key}: {value}' for key, value in fields.items())}}}"


def _plain(name: str) -> Any:
    """A name as YAML, quoted where it must be."""
    return yaml.safe_dump(name, default_flow_style=True).removesuffix("\n").removesuffix("\n...")
