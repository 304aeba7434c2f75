"""Requests as they came in somewhere: read from a file, or made up with the statistics of one."""

from geotrain.prefill.trace.generator import find_trace, generate
from geotrain.prefill.trace.reader import read_trace
from geotrain.prefill.trace.trace import Trace

__all__ = ["Trace", "find_trace", "generate", "read_trace"]
