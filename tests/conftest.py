"""Settings and fixtures that all tests share."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

import geotrain

# Same inputs, same outcome: a test that fails here fails everywhere, however slow the machine.
settings.register_profile("geotrain", deadline=None, derandomize=True)
settings.load_profile("geotrain")

# The only reasons for which CI may leave a test out: what no set-up can bring to its machine.
SKIPS_ON_CI = ("this kernel has no netem", "this kernel has netem", "Ray is installed", "vLLM is here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Fail a test that is skipped on CI for any other reason than those above."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        _, _, reason = report.longrepr
        if not reason.removeprefix("Skipped: ").startswith(SKIPS_ON_CI):
            report.outcome = "failed"
            report.longrepr = f"on CI nothing important may be skipped: {reason}"
    return report


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A directory with a copy of the built-in cluster.yaml, job.yaml and plan.yaml, free to be edited."""
    built_in = Path(geotrain.__file__).parent / "examples" / "three-dcs"
    return shutil.copytree(built_in, tmp_path / "example")
