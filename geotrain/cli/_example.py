"""The examples that come with the package."""

from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "three-dcs"
"""What `demo` plays."""
FIRST = Path(__file__).parents[1] / "examples" / "first"
"""What `init` writes: every data center is worth its WAN."""
FILES = ("cluster.yaml", "job.yaml", "plan.yaml")
