"""WHAT WE RUN ON: data centers, their GPUs and fabric, and the WAN between them."""

from geotrain.cluster.catalog import GPUS
from geotrain.cluster.cluster import Cluster, Datacenter, Fabric, Link, Wan
from geotrain.cluster.gpu import Gpu

__all__ = ["GPUS", "Cluster", "Datacenter", "Fabric", "Gpu", "Link", "Wan"]
