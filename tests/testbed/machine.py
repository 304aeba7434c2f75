"""What this machine grants."""

import os
import shutil
import subprocess

import pytest


def require_namespaces() -> None:
    """Skip the test where no testbed can be built."""
    for tool in ("ip", "tc", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if not os.path.exists("/dev/net/tun"):
        pytest.skip("there is no /dev/net/tun")
    for options in (["-n"], ["-Urn"]):
        if subprocess.run(["unshare", *options, "true"], capture_output=True, timeout=10).returncode == 0:
            return
    pytest.skip("needs root or user namespaces")
