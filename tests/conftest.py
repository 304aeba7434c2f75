"""Settings and fixtures that all tests share."""

import shutil
from pathlib import Path

import pytest
from hypothesis import settings

import geotrain

# Same inputs, same outcome: a test that fails here fails everywhere, however slow the machine.
settings.register_profile("geotrain", deadline=None, derandomize=True)
settings.load_profile("geotrain")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A directory with a copy of the built-in cluster.yaml, job.yaml and plan.yaml, free to be edited."""
    built_in = Path(geotrain.__file__).parent / "examples" / "three-dcs"
    return shutil.copytree(built_in, tmp_path / "example")
