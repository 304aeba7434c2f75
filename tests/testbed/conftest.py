"""Real namespaces, where the machine grants them."""

import pytest

from tests.testbed.machine import require_namespaces


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips the test where no testbed can be built."""
    require_namespaces()
