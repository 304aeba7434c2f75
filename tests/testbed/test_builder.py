"""Building by netem, as far as this kernel goes."""

import json
import subprocess
import sys
from typing import Any

import pytest

from geotrain.errors import RunError
from geotrain.testbed import Testbed
from tests.testbed.clusters import cluster
from tests.testbed.traffic import Stream, round_trip_s

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("namespaces")]

WINDOW = 1e6
LINK: dict[str, Any] = {"rtt": "20 ms", "pair_cap": "1 Gbit/s", "capacity": "800 Mbit/s", "tcp_window": WINDOW}

# Everything but netem itself, in a process of its own because it moves out of the machine's network.
WITHOUT_NETEM = """
import json
from geotrain.testbed import builder, draw
from geotrain.testbed.announced import announced_window
from geotrain.testbed.blueprint import Space
from geotrain.testbed.namespace import leave_the_host
from geotrain.testbed.plumbing import Step
from tests.testbed.clusters import cluster
from tests.testbed.test_builder import LINK

def without_netem(blueprint, path, steps=builder.netem_steps):
    for step in steps(blueprint, path):
        yield Step(step.space, step.tool, tuple(line for line in step.lines if " netem " not in line))

builder.netem_steps = without_netem
builder.Builder._choose = lambda self, wanted: "netem"
leave_the_host()
made = builder.Builder(draw(cluster(**LINK), nodes_per_dc=2), "netem")
made.build()
window = announced_window(made.spaces[Space("east", 1)], made.spaces[Space("south", 1)], "10.2.0.2")
print(json.dumps(window))
"""


def test_the_wiring_for_netem_carries_tcp_with_the_window_of_the_file():
    done = subprocess.run([sys.executable, "-c", WITHOUT_NETEM], capture_output=True, text=True, timeout=40)
    assert done.stderr == ""
    assert json.loads(done.stdout) == pytest.approx(WINDOW, rel=0.1)


def has_netem() -> bool:
    probe = "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"
    return subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True, timeout=10).returncode == 0


def test_netem_gives_the_round_trip_and_the_window():
    if not has_netem():
        pytest.skip("this kernel has no netem")
    with Testbed(cluster(**LINK), nodes_per_dc=2, wan="netem") as bed:
        assert 0.02 <= round_trip_s(bed, ("east", 0), ("south", 1)) < 0.2
        assert 0.1 * WINDOW / 0.02 < Stream(bed, ("east", 0), ("south", 1)).rate() < 1.15 * WINDOW / 0.02
        assert Stream(bed, ("east", 0), ("south", 1), connections=6).rate() <= 105e6


def test_a_kernel_without_netem_says_so():
    if has_netem():
        pytest.skip("this kernel has netem")
    with (
        pytest.raises(RunError, match=r"^this kernel has no netem \(.*\); `--wan forwarder` does without$"),
        Testbed(cluster(**LINK), nodes_per_dc=1, wan="netem"),
    ):
        pass
