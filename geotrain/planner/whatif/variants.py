"""The same cluster with something changed: data centers gone, bandwidth scaled or capped."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from geotrain.cluster import Cluster
from geotrain.planner.whatif.address import Content, content_of


def with_nodes(cluster: Cluster, nodes: Mapping[str, int]) -> Cluster:
    """Other numbers of nodes. A data center without any stays, because links speak of it; nobody can use it."""
    content = content_of(cluster)
    for dc in content["datacenters"]:
        dc["nodes"] = nodes.get(dc["name"], dc["nodes"])
    return Cluster.model_validate(content, by_name=False)


def has_limits(cluster: Cluster) -> bool:
    """Whether any link of the WAN has a bandwidth."""
    return any(link.get(name) for link in _links(content_of(cluster)) for name in ("pair_cap", "capacity"))


def with_bandwidth(cluster: Cluster, share: float) -> Cluster:
    """That share of every bandwidth of the WAN."""
    content = content_of(cluster)
    for link in _links(content):
        for name in ("pair_cap", "capacity"):
            if link.get(name) is not None:
                link[name] *= share
    return Cluster.model_validate(content, by_name=False)


def with_pair_cap(cluster: Cluster, rate: float) -> Cluster:
    """The same cap for every pair; infinite is none. A link's capacity stays."""
    content = content_of(cluster)
    content.setdefault("wan", {}).setdefault("default", {})
    for link in _links(content):
        link["pair_cap"] = rate if math.isfinite(rate) else None
    return Cluster.model_validate(content, by_name=False)


def _links(content: Content) -> Iterator[dict[str, Any]]:
    wan = content.get("wan", {})
    yield from [wan["default"]] if "default" in wan else []
    yield from wan.get("links", [])
