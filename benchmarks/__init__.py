"""Measurements with targets: `make bench` runs them all. Figures depend on the machine; run it when it is quiet."""
