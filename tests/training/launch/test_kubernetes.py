"""Manifests as an API server would take them, and pods that find their place when they are run."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.training.launch import Launch
from geotrain.training.launch.kubernetes import kubernetes_files
from geotrain.training.launch.scripts import write
from tests.training.launch import manifests
from tests.training.launch.runs import until
from tests.training.launch.shells import check_script, require_bash, run, stand_ins, value, words
from tests.training.plans import plan

CONTROL, IMAGE = "control.example.com:29400", "registry.example.com/geotrain:1"
RUN = "/geotrain/run"
"""Where pods mount the volume of the run."""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Six processes in two pods of east, three in one of south."""
    seating = Seating(plan(["east", "east", "south"], pipelines_per_cell=3, gpus_per_node=4))
    return Launch(plan_file=Path("p.yaml"), seating=seating, out=tmp_path / "run", data=Path("/data"))


def test_the_manifests_are_valid_and_ask_for_what_the_plan_needs(launch: Launch):
    files = kubernetes_files(launch, CONTROL, IMAGE)
    east, south = (manifests.read(files[f"{dc}.yaml"]) for dc in ("east", "south"))
    assert list(east) == ["ConfigMap", "Service", "PyTorchJob"] and list(south) == ["ConfigMap", "PyTorchJob"]
    replicas = east["PyTorchJob"].spec.pytorch_replica_specs
    assert {kind: each.replicas for kind, each in replicas.items()} == {"Master": 1, "Worker": 1}
    assert list(south["PyTorchJob"].spec.pytorch_replica_specs) == ["Master"]
    gpus = [each.template.spec.containers[0].resources.limits["nvidia.com/gpu"] for each in replicas.values()]
    assert gpus == [4, 4]
    assert Plan.parse(yaml.safe_load(south["ConfigMap"].data["plan.yaml"]), source=Path("p")) == launch.seating.plan


def test_the_control_service_leads_to_the_first_pod_of_the_first_data_center(launch: Launch):
    east = manifests.read(kubernetes_files(launch, CONTROL, IMAGE)["east.yaml"])
    service, job = east["Service"].spec, east["PyTorchJob"]
    assert service.selector == {
        "training.kubeflow.org/job-name": job.metadata.name,
        "training.kubeflow.org/replica-type": "master",
    }
    ports = job.spec.pytorch_replica_specs["Master"].template.spec.containers[0].ports
    assert service.ports[0].target_port == ports[-1].container_port == 29400


def test_a_manifest_with_a_field_that_does_not_exist_is_noticed(launch: Launch):
    text = kubernetes_files(launch, CONTROL, IMAGE)["east.yaml"]
    for good, bad in (
        ("backoffLimit: 10", "backoffLimits: 10"),
        ("name: geotrain-east\n", "name: Geotrain\n"),
        ("- name: run\n              mountPath", "- name: runs\n              mountPath"),
    ):
        assert good in text
        with pytest.raises(ValidationError):
            manifests.read(text.replace(good, bad))


@pytest.mark.parametrize(
    ("dc", "rank", "workers", "name", "control"),
    [
        pytest.param("east", 0, "4", "0000", "10.0.0.7:29400", id="leader"),
        pytest.param("east", 1, "2", "0001", "10.0.0.7:29400", id="last"),
        pytest.param("south", 0, "3", "0000", CONTROL, id="other"),
    ],
)
def test_a_pod_finds_its_place(
    launch: Launch, tmp_path: Path, dc: str, rank: int, workers: str, name: str, control: str
):
    require_bash()
    container = container_of(launch, dc, rank)
    environment = stand_ins(tmp_path / "bin", torchrun='printf "%s\\n" "$@" > "$RECORD"')
    given = {"POD_IP": "10.0.0.7", "RANK": str(rank), "RECORD": str(tmp_path / "told"), "TMPDIR": str(tmp_path)}
    run(*command(container, tmp_path / "volume"), env=environment | given)
    told = words(tmp_path / "told")
    assert (value(told, "--nproc-per-node"), value(told, "--local-addr")) == (workers, name)
    assert value(told, "--control") == control
    store = Path(value(told, "--rdzv-endpoint")).parent
    assert (value(told, "--rdzv-conf").split(",")[0], store.stat().st_mode & 0o777) == ("store_type=file", 0o700)
    assert (store.parent == tmp_path / "volume" / "rendezvous" / dc) == (dc == "east"), "one pod shares nothing"
    mounts = {mount.mount_path.replace(RUN, str(tmp_path / "volume")) for mount in container.volume_mounts}
    assert {value(told, "--data"), value(told, "--out"), value(told, "--keys")} <= mounts


def container_of(launch: Launch, dc: str, rank: int) -> manifests.Container:
    job = manifests.read(kubernetes_files(launch, CONTROL, IMAGE)[f"{dc}.yaml"])["PyTorchJob"]
    found: manifests.Container = job.spec.pytorch_replica_specs[
        "Worker" if rank else "Master"
    ].template.spec.containers[0]
    return found


def command(container: manifests.Container, volume: Path) -> list[str]:
    """Of a container, where this directory is the volume that all pods mount."""
    return [word.replace(RUN, str(volume)) for word in (*container.command, *container.args)]


def test_a_manifest_says_what_its_volume_must_be_able_to_and_is_the_same_but_for_the_run(launch: Launch):
    files = kubernetes_files(launch, CONTROL, IMAGE)
    assert "flock" in files["east.yaml"] and "ReadWriteMany" in files["east.yaml"]
    assert "flock" not in files["south.yaml"] and "ask for no key" in files["south.yaml"]
    other = kubernetes_files(replace(launch, run_id="0123456789"), CONTROL, IMAGE)["east.yaml"]
    assert files["east.yaml"] == other.replace("0123456789", launch.run_id) and len(launch.run_id) == 32


def test_pods_that_start_again_join_those_that_live_and_nothing_that_is_left_of_an_attempt(
    launch: Launch, tmp_path: Path
):
    require_bash()
    environment = stand_ins(tmp_path / "bin", torchrun='echo "$GEOTRAIN_STORE" > "$RECORD"; exec sleep 1000')

    @contextmanager
    def pod(rank: int, start: int) -> Iterator[Path]:
        """Where it meets the others; killed in the end."""
        record = tmp_path / f"pod-{rank}-{start}"
        given = {"POD_IP": "10.0.0.7", "RANK": str(rank), "RECORD": str(record)}
        words = command(container_of(launch, "east", rank), tmp_path / "volume")
        with subprocess.Popen(words, env=environment | given) as process:
            try:
                until(lambda: record.exists() and record.read_text(), deadline_s=30)
                yield Path(record.read_text().strip())
            finally:
                process.kill()

    with pod(0, 1) as first, pod(1, 1) as joined:
        assert first == joined and first.stat().st_mode & 0o777 == 0o700
        (first / "agents").touch()
    # Both were killed: what they have left says nothing to the next.
    with pod(1, 2) as second:
        with pod(0, 2) as joined:
            assert joined == second != first and not first.exists()
        with pod(0, 3) as joined:
            assert joined == second, "the one that lives waits here for the one that was killed"
    assert [path for path in second.parent.glob("attempt-*")] == [second]


def test_pods_that_start_at_once_meet(launch: Launch, tmp_path: Path):
    require_bash()
    environment = stand_ins(tmp_path / "bin", torchrun='echo "$GEOTRAIN_STORE" > "$RECORD"; read -r')
    words = command(container_of(launch, "east", 1), tmp_path / "volume")

    def meeting_points(turn: int) -> set[str]:
        records = [tmp_path / f"pod-{turn}-{number}" for number in range(6)]
        told = [{"POD_IP": "10.0.0.7", "RANK": "1", "RECORD": str(record)} for record in records]
        pods = [subprocess.Popen(words, env=environment | one, stdin=subprocess.PIPE) for one in told]
        until(lambda: all(record.exists() and record.read_text() for record in records), deadline_s=60)
        for one in pods:
            one.communicate(b"\n")
        return {record.read_text() for record in records}

    assert [len(meeting_points(turn)) for turn in range(5)] == [1] * 5


def test_the_secret_that_is_made_is_the_one_that_is_mounted(launch: Launch, tmp_path: Path):
    require_bash()
    files = kubernetes_files(launch, CONTROL, IMAGE)
    write(launch.out / "kubernetes", files)
    for script in ("keys.sh", "apply.sh"):
        check_script(launch.out / "kubernetes" / script)
    tools = {"geotrain": "true", "kubectl": 'printf "%s\\n" "$@" > "$RECORD/$2"'}
    environment = stand_ins(tmp_path / "bin", **tools) | {"RECORD": str(tmp_path), "CONTEXT_SOUTH": "other"}
    run(launch.out / "kubernetes" / "keys.sh", env=environment)
    for dc, context in (("east", "east"), ("south", "other")):
        pod = manifests.read(files[f"{dc}.yaml"])["PyTorchJob"].spec.pytorch_replica_specs["Master"].template.spec
        (secret,) = (volume.secret for volume in pod.volumes if volume.secret is not None)
        told = words(tmp_path / context)
        assert told[:6] == ["--context", context, "create", "secret", "generic", secret.secret_name]
        assert told[6:] == [f"--from-file={item.key}=keys/{item.path}" for item in secret.items]
    run(launch.out / "kubernetes" / "apply.sh", env=environment)
    assert words(tmp_path / "other") == ["--context", "other", "apply", "--filename", "kubernetes/south.yaml"]


def test_without_keys_and_data_there_is_nothing_to_mount(tmp_path: Path):
    single = Launch(plan_file=Path("p.yaml"), seating=Seating(plan(["east"])), out=tmp_path, insecure=True)
    files = kubernetes_files(single, None, IMAGE)
    assert sorted(files) == ["apply.sh", "east.yaml"]
    pod = manifests.read(files["east.yaml"])["PyTorchJob"].spec.pytorch_replica_specs["Master"].template.spec
    assert [volume.name for volume in pod.volumes] == ["plan", "run", "shared-memory"]


def test_what_cannot_be_written_is_refused(launch: Launch):
    with pytest.raises(InputError, match="--image NAME is missing: a container image"):
        kubernetes_files(launch, CONTROL, None)
    with pytest.raises(InputError, match="--control HOST:PORT is missing: where south can reach"):
        kubernetes_files(launch, None, IMAGE)
    relative = Launch(plan_file=Path("p"), seating=launch.seating, out=Path("o"), data=Path("data"))
    with pytest.raises(InputError, match="--data is 'data' and must be the directory that pods see"):
        kubernetes_files(relative, CONTROL, IMAGE)
