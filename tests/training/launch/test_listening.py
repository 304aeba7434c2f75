"""What a run's processes listen at: nothing that another machine can reach, or the node's own address and no store."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from geotrain.seating import Seating
from geotrain.testbed import Testbed
from geotrain.training.launch import Launch
from geotrain.training.launch.kubernetes import kubernetes_files
from tests.testbed.machine import require_namespaces
from tests.training.launch import manifests
from tests.training.launch.runs import python, until
from tests.training.launch.shells import stand_ins
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


class Pods:
    """Two pods of a manifest, each on a node of a testbed, with a volume that both mount."""

    def __init__(self, bed: Testbed, launch: Launch, directory: Path) -> None:
        manifest = manifests.read(kubernetes_files(launch, None, "image")["east.yaml"])
        self._replicas = manifest["PyTorchJob"].spec.pytorch_replica_specs
        self._bed, self._directory, self.volume = bed, directory, directory / "volume"
        modules = {"torchrun": "torch.distributed.run", "geotrain": "geotrain"}
        commands = {name: f'exec {sys.executable} -m {module} "$@"' for name, module in modules.items()}
        self._environment = stand_ins(directory / "bin", **commands) | {"PYTHONPATH": os.getcwd()}
        (directory / "plan").mkdir()
        (directory / "plan" / "plan.yaml").write_text(manifest["ConfigMap"].data["plan.yaml"])

    def start(self, rank: int) -> subprocess.Popen[bytes]:
        """What the kubelet would start, with what the operator would tell it."""
        container = self._replicas["Worker" if rank else "Master"].template.spec.containers[0]
        words = [
            word.replace("/geotrain/run", str(self.volume)).replace("/geotrain/plan", str(self._directory / "plan"))
            for word in (*container.command, *container.args)
        ]
        # The operator's own: its port is one that nothing of ours may use.
        told = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": self._bed.address("east"), "MASTER_PORT": "29401"}
        told |= {"POD_IP": self._bed.address("east", rank), "GLOO_SOCKET_IFNAME": "fabric"}
        # In a container the agent is process 1, and when that is killed, all others are.
        inside = ["unshare", "--pid", "--fork", "--kill-child", *words]
        return self._bed.popen("east", rank, inside, env=self._environment | told)

    def steps(self) -> int:
        """Steps of all starts in the log so far."""
        log = self.volume / "log.jsonl"
        return log.read_text().count("\n") if log.exists() else 0


def test_pods_of_a_data_center_meet_in_files_and_nothing_listens_but_gloo_at_its_node_s_address(tmp_path: Path):
    require_namespaces()
    decided = plan(["east", "east"])
    launch = Launch(
        plan_file=Path("plan.yaml"),
        seating=Seating(decided),
        out=tmp_path,
        insecure=True,
        options=("--compute", "emulated", "--steps", "1000000"),
    )
    with Testbed(decided.cluster, nodes_per_dc=2) as bed, ExitStack() as stack:
        pods = Pods(bed, launch, tmp_path)

        def start(rank: int) -> subprocess.Popen[bytes]:
            pod = pods.start(rank)
            stack.callback(pod.wait, 30)
            stack.callback(pod.kill)
            return pod

        first, second = start(0), start(1)
        until(lambda: pods.steps() or first.poll() is not None or second.poll() is not None, deadline_s=60)
        for rank, pod in enumerate((first, second)):
            assert pod.poll() is None
            own = hexadecimal(bed.address("east", rank))
            found = listeners(pod.pid)
            assert found and {address for address, _ in found} <= {own, "0100007F"}, "never on all addresses"
            assert 29401 not in {port for _, port in found}
        # A pod is killed and starts again: the other one waits for it where they have met.
        second.kill()
        second.wait(30)
        before = pods.steps()
        start(1)
        until(lambda: pods.steps() > before + 1, deadline_s=100)
        assert first.poll() is None


def hexadecimal(address: str) -> str:
    """As the kernel has it."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
