"""Batch scripts that sbatch takes, and nodes that find their place when they are run."""

import sys
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.training.launch import Launch
from geotrain.training.launch.scripts import write
from geotrain.training.launch.slurm import slurm_files
from tests.training.launch import sbatch
from tests.training.launch.shells import check_script, require_bash, run, stand_ins, value, words
from tests.training.plans import plan

CONTROL = "gpu-10:29400"
SCONTROL = '[[ $1 == show && $2 == hostnames ]] && tr , "\\n" <<< "$3"'
SRUN = """
while [[ $1 == --* ]]; do shift; done
for node in ${SLURM_JOB_NODELIST//,/ }; do SLURMD_NODENAME=$node "$@" || exit; done
"""
TORCHRUN = 'printf "%s\\n" "$@" > "$RECORD/$SLURMD_NODENAME"'


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Six processes on two nodes of east, three on one of south."""
    seating = Seating(plan(["east", "east", "south"], pipelines_per_cell=3, gpus_per_node=4))
    out, data = tmp_path / "a run", Path("/data")
    return Launch(plan_file=Path("p.yaml"), seating=seating, out=out, data=data, options=("--deadline", "2 h"))


def submitted(launch: Launch, tmp_path: Path, dc: str, nodes: str) -> dict[str, list[str]]:
    """What torchrun is told on each node."""
    require_bash()
    write(launch.out / "slurm", slurm_files(launch, CONTROL))
    tools = {
        "scontrol": SCONTROL,
        "srun": SRUN,
        "torchrun": TORCHRUN,
        "hostname": 'echo "10.0.0.${SLURMD_NODENAME#*-} 9"',
    }
    record = tmp_path / dc
    record.mkdir()
    told = {"SLURM_JOB_NODELIST": nodes, "SLURM_JOB_ID": "7", "RECORD": str(record)}
    environment = stand_ins(tmp_path / "bin", **tools) | told
    run("bash", launch.out / "slurm" / f"{dc}.sbatch", env=environment)
    return {path.name: words(path) for path in record.iterdir()}


def test_sbatch_takes_the_scripts_and_they_ask_for_what_the_plan_needs(launch: Launch, tmp_path: Path):
    require_bash()
    files = slurm_files(launch, CONTROL)
    east, south = (sbatch.read(files[f"{dc}.sbatch"]) for dc in ("east", "south"))
    common = {"ntasks-per-node": "1", "exclusive": "", "mem": "0", "time": "1-00:00:00", "requeue": ""}
    assert east.items() >= (common | {"nodes": "2", "gpus-per-node": "4", "nodelist": "gpu-10"}).items()
    assert south.items() >= (common | {"nodes": "1", "gpus-per-node": "3"}).items()
    assert "nodelist" not in south
    write(tmp_path, files)
    for name in ("east.sbatch", "south.sbatch", "submit.sh", "keys.sh"):
        check_script(tmp_path / name)
    assert Plan.load(tmp_path / "plan.yaml") == launch.seating.plan


def test_an_option_that_sbatch_does_not_know_is_noticed(launch: Launch):
    script = slurm_files(launch, CONTROL)["east.sbatch"]
    for good, bad in (("--requeue", "--requeued"), ("--nodes=2", "--nodes=two"), ("--exclusive", "--exclusive # all")):
        with pytest.raises(AssertionError):
            sbatch.read(script.replace(good, bad))
    with pytest.raises(AssertionError, match="overlooks"):
        sbatch.read(f"{script}#SBATCH --hold\n")


def test_the_node_of_the_control_address_is_the_first_wherever_it_stands_in_the_list(launch: Launch, tmp_path: Path):
    told = submitted(launch, tmp_path, "east", "gpu-9,gpu-10")
    assert {node: value(words, "--local-addr") for node, words in told.items()} == {
        "gpu-10": "0000",
        "gpu-9": "0001",
    }
    assert {node: value(words, "--nproc-per-node") for node, words in told.items()} == {"gpu-10": "4", "gpu-9": "2"}
    assert {value(words, "--rdzv-conf").split(",")[0] for words in told.values()} == {"store_type=file"}
    assert {value(words, "--rdzv-endpoint") for words in told.values()} == {f"{launch.out}/rendezvous/east-7-0/agents"}
    assert not list((launch.out / "rendezvous").iterdir()), "what a job has left is removed"
    assert told["gpu-10"][told["gpu-10"].index("--no-python") + 1 :] == [
        *("geotrain", "train", f"{launch.out}/slurm/plan.yaml", "--dc", "east", "--data", "/data"),
        *("--out", str(launch.out), "--control", "10.0.0.10:29400", "--host", "10.0.0.10"),
        *("--keys", f"{launch.out}/keys", "--deadline", "2 h"),
    ]


def test_other_data_centers_begin_with_their_own_first_node(launch: Launch, tmp_path: Path):
    (told,) = submitted(launch, tmp_path, "south", "gpu-3").values()
    assert (value(told, "--rdzv-id"), value(told, "--nproc-per-node")) == ("7", "3")
    assert (value(told, "--control"), value(told, "--host")) == (CONTROL, "10.0.0.3")


def test_all_are_submitted_where_they_are_told_to(launch: Launch, tmp_path: Path):
    require_bash()
    write(launch.out / "slurm", slurm_files(launch, CONTROL))
    environment = stand_ins(tmp_path / "bin", sbatch='echo here "$@"', ssh='echo "$@"')
    said = run(launch.out / "slurm" / "submit.sh", "--qos=high", env=environment | {"SUBMIT_SOUTH": "ssh south-login"})
    directory = launch.out / "slurm"
    assert said.splitlines() == [
        f"here --qos=high {directory}/east.sbatch",
        f"south-login sbatch --qos=high {directory}/south.sbatch",
    ]


def test_keys_are_made_for_every_process_where_the_scripts_look_for_them(launch: Launch, tmp_path: Path):
    require_bash()
    write(launch.out / "slurm", slurm_files(launch, CONTROL))
    environment = stand_ins(tmp_path / "bin", geotrain=f'exec {sys.executable} -m geotrain "$@"')
    run(launch.out / "slurm" / "keys.sh", env=environment | {"PYTHONPATH": str(Path.cwd())})
    made = {path.name for path in (launch.out / "keys").iterdir()}
    assert made == {"ca", *(seat.name for seat in launch.seating.seats)}


@pytest.mark.parametrize(
    ("control", "sentence"),
    [
        pytest.param(
            None, "--control HOST:PORT is missing: where south can reach the first process of east", id="none"
        ),
        pytest.param("gpu-1", "--control is 'gpu-1' and must be HOST:PORT", id="port"),
        pytest.param("10.0.0.1:80", "--control is '10.0.0.1:80' and must begin with a node's name", id="address"),
    ],
)
def test_a_control_address_that_cannot_be_one_is_refused(launch: Launch, control: str | None, sentence: str):
    with pytest.raises(InputError) as error:
        slurm_files(launch, control)
    assert str(error.value).startswith(sentence)


def test_a_plan_in_one_data_center_needs_no_control_address(tmp_path: Path):
    single = Launch(plan_file=Path("p.yaml"), seating=Seating(plan(["US East"])), out=tmp_path, insecure=True)
    files = slurm_files(single, None)
    assert sorted(files) == ["plan.yaml", "submit.sh", "us-east.sbatch"]
    assert "--control" not in files["us-east.sbatch"] and "--dc 'US East'" in files["us-east.sbatch"]


def test_names_that_become_the_same_file_are_refused():
    same = Launch(plan_file=Path("p.yaml"), seating=Seating(plan(["us east", "us-east"])), out=Path())
    with pytest.raises(InputError, match="the data center's name is 'us east' and must be 1 to 40 letters and digits"):
        slurm_files(same, CONTROL)
