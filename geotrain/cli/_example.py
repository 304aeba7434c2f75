"""The examples that come with the package: what `init` writes and `demo` plays."""

from pathlib import Path

_EXAMPLES = Path(__file__).parents[1] / "examples"
EXAMPLE = _EXAMPLES / "three-dcs"
FILES = ("cluster.yaml", "job.yaml", "plan.yaml")
LIVE = _EXAMPLES / "live" / "plan.yaml"
