"""The example that comes with the package: what `init` writes and `demo` plays."""

from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "three-dcs"
FILES = ("cluster.yaml", "job.yaml", "plan.yaml")
