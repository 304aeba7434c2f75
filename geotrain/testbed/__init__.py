"""A cluster on one machine: network namespaces, real TCP, and a WAN with the file's round trips, rates and loss."""

from geotrain.testbed.blueprint import DEFAULT_NODES_PER_DC, Blueprint, draw
from geotrain.testbed.launch import launch
from geotrain.testbed.processes import take_down
from geotrain.testbed.record import Files, Record
from geotrain.testbed.testbed import Session, Testbed

__all__ = ["DEFAULT_NODES_PER_DC", "Blueprint", "Files", "Record", "Session", "Testbed", "draw", "launch", "take_down"]
