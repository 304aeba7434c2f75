"""A device that others hold is waited for, not for ever."""

from pathlib import Path

import pytest

from geotrain.device import Device
from geotrain.errors import RunError


def test_a_device_that_is_never_given_back_is_a_sentence(tmp_path: Path):
    one, other = Device(tmp_path, "east-0"), Device(tmp_path, "east-0", deadline_s=0.05)
    with one.held(0.0), pytest.raises(RunError, match=r"east-0.device: another process has held it for 0.05 s"):
        other.hold(0.0)
    other.hold(0.0)
