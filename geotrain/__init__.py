"""geotrain plans, simulates and runs language-model training across data centers joined by a WAN."""

__version__ = "0.1.0"
