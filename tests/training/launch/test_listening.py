"""What a run's processes listen at: nothing that another machine can reach, on one node per data center."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from geotrain.testbed import Testbed
from tests.testbed.machine import require_namespaces
from tests.training.launch.runs import python, until
from tests.training.plans import plan

pytestmark = pytest.mark.slow


LAUNCH = """
from pathlib import Path

import pytest
from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.training.launch import Launch, Loopback, Run
file, out = Path({file!r}), Path({out!r})
options = ("--compute", "emulated", "--steps", "1000000")
made = Launch(plan_file=file, seating=Seating(Plan.load(file)), out=out, max_restarts=1, options=options)
with Run(made, Loopback(made.seating)) as run: run.wait()
"""
PROBE = """
import json, socket
def reached(port):
    try:
        socket.create_connection(({address!r}, port), timeout=5).close()
    except OSError:
        return False
    return True
print(json.dumps([port for port in {ports} if reached(port)]))
"""
EVERYWHERE = "import socket, time\nserver = socket.create_server(('', 0))\ntime.sleep(100)"


def listeners(pid: int) -> set[tuple[str, int]]:
    """Address, in hex as the kernel has it, and port of every TCP socket that listens in the process's namespace."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if state == "0A":
                address, port = local.split(":")
                found.add((address, int(port, 16)))
    return found


def reachable(bed: Testbed, ports: list[int]) -> list[int]:
    """From the other data center."""
    script = PROBE.format(address=bed.address("east"), ports=ports)
    with bed.popen("south", 0, python(script), stdout=subprocess.PIPE, text=True) as probe:
        return list(json.loads(probe.communicate(timeout=50)[0]))


def test_no_other_machine_reaches_a_run_on_this_one(tmp_path: Path):
    require_namespaces()
    decided, file, out = plan(["east", "east", "south"]), tmp_path / "plan.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(decided.dump()))
    log = out / "log.jsonl"
    with Testbed(decided.cluster, nodes_per_dc=1) as bed:
        launcher = bed.popen("east", 0, python(LAUNCH.format(file=str(file), out=str(out))))
        try:
            until(lambda: launcher.poll() is not None or (log.exists() and log.read_text()), deadline_s=50)
            assert launcher.poll() is None
            found = listeners(launcher.pid)
            assert found and {address for address, _ in found} == {"0100007F"}, "only at 127.0.0.1"
            assert reachable(bed, [port for _, port in found]) == []
            with bed.popen("east", 0, python(EVERYWHERE)) as careless:
                # The probe does find what listens everywhere.
                until(lambda: listeners(launcher.pid) - found, deadline_s=30)
                open_ports = [port for _, port in listeners(launcher.pid) - found]
                assert reachable(bed, open_ports) == open_ports
                careless.kill()
        finally:
            launcher.terminate()
            launcher.wait(30)
