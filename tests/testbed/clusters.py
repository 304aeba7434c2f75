"""Clusters to build."""

from pathlib import Path
from typing import Any

from geotrain.cluster import Cluster


def cluster(*names: str, nodes: int = 4, fabric: dict[str, Any] | None = None, **link: Any) -> Cluster:
    """Equal data centers, `east` and `south` unless named, joined by equal links."""
    inner = {} if fabric is None else {"fabric": fabric}
    centers = [{"name": name, "nodes": nodes, "gpu": "a100-80gb", **inner} for name in names or ("east", "south")]
    content = {"name": "test", "datacenters": centers, "wan": {"default": link}}
    return Cluster.parse(content, source=Path("test"))
