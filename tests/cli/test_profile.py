import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geotrain.plan import Plan
from geotrain.workload import Job
from tests.ports import free_port

JOB = """# a small one
model: {layers: 3, hidden: 32, heads: 4, kv_heads: 2, ffn: 64, vocab: 97, activation: swiglu}
sequence: 16          # short
microbatches: 4
precision: fp32
"""
CLUSTER = """name: two
datacenters:
  - {name: east, nodes: 2, gpus_per_node: 2, gpu: a100-80gb}
  - {name: south, nodes: 1, gpu: a100-80gb}
wan: {default: {rtt: 10 ms, pair_cap: 1 Gbit/s}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    head = "cluster: cluster.yaml\njob: job.yaml\n"
    (tmp_path / "plan.yaml").write_text(head + "stages: [{dc: east, layers: 2}, {dc: south, layers: 1}]\n")
    (tmp_path / "single.yaml").write_text(head + "stages: [{dc: east, layers: 3}]\n")
    (tmp_path / "thin.yaml").write_text(JOB.replace("layers: 3", "layers: 1"))
    wide = head.replace("job.yaml", "thin.yaml") + "tensor_parallel: 2\nstages: [{dc: east, layers: 1}]\n"
    (tmp_path / "wide.yaml").write_text(wide)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("plan", ["plan.yaml", "single.yaml"])
def test_a_plan_with_its_measured_profile_simulates(geotrain, plan: str):
    answer = geotrain("profile", plan, "--write", "--repeat", 2, "--json")
    assert answer.exit_code == 0
    found, stages = answer.json, Plan.load(Path(plan)).stages
    assert (found["device"], found["repeat"], found["written"]) == ("cpu", 2, "job.yaml")
    assert [(one["stage"], one["layers"]) for one in found["stages"]] == [(n, s.layers) for n, s in enumerate(stages)]
    assert (found["stages"][0]["embedding"], found["stages"][-1]["head"]) == (True, True)
    for entry in found["profile"]["stage"]:
        assert 0 < entry["weight_grad_s"] <= entry["backward_s"]
        assert all(entry[name] > 0 for name in ("forward_s", "recompute_s", "static_bytes", "activation_bytes"))
    assert all(found["profile"][name] > 0 for name in ("boundary_bytes", "gradient_bytes", "optimizer_s"))
    assert Path("job.yaml").read_text().startswith(JOB + "profile:\n  stage:\n    - {forward_s: ")

    compute_s = sum(entry["forward_s"] + entry["backward_s"] for entry in found["profile"]["stage"])
    simulated = geotrain("simulate", plan, "--json")
    assert simulated.exit_code == 0
    assert simulated.json["step_time_s"] > compute_s + found["profile"]["optimizer_s"] * 0.99


def test_a_job_gets_one_entry_for_all_stages(geotrain):
    answer = geotrain("profile", "job.yaml", "--layers", 2, "--repeat", 1)
    assert answer.exit_code == 0
    rows = answer.out.splitlines()
    assert rows[0].strip() == "custom on cpu" and rows[1].split()[:3] == ["stage", "forward", "recompute"]
    assert rows[-1] == "not written: --write puts the profile into job.yaml"
    assert Path("job.yaml").read_text() == JOB

    assert geotrain("profile", "job.yaml", "--layers", 2, "--repeat", 1, "--write").out.endswith("profile: job.yaml\n")
    assert not isinstance(Job.load(Path("job.yaml")).profile.stage, list)
    assert geotrain("simulate", "plan.yaml").exit_code == 0


def test_one_data_center_at_a_time(geotrain):
    for dc in ("south", "east"):
        assert geotrain("profile", "plan.yaml", "--dc", dc, "--repeat", 1, "--write").exit_code == 0
        written = Job.load(Path("job.yaml")).profile.stage
        assert isinstance(written, list)
        assert [entry.forward_s is not None for entry in written] == [dc == "east", True]


def test_a_device_that_stands_for_several_kinds_is_a_warning(geotrain):
    Path("cluster.yaml").write_text(CLUSTER.replace("nodes: 1, gpu: a100-80gb", "nodes: 1, gpu: h100"))
    answer = geotrain("profile", "plan.yaml", "--repeat", 1, "--json")
    assert answer.err == (
        "warning: the plan has a100-80gb and h100; this device stands for all, --dc measures one's own\n"
    )
    assert geotrain("profile", "plan.yaml", "--repeat", 1, "--json", "--dc", "east").err == ""


def test_gpus_that_share_a_stage_measure_it_together(geotrain):
    whole = geotrain("profile", "thin.yaml", "--repeat", 1, "--json").json["stages"][0]
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "geotrain", "profile", "wide.yaml", "--device", "cpu", "--repeat", "1", "--json"],
            env={**os.environ, **world, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
        )
        for rank in "01"
    ]
    told = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0] and told[1] == b""
    shared = json.loads(told[0])["stages"][0]
    assert shared["gradient_bytes"] == whole["gradient_bytes"]
    assert 0.5 < shared["static_bytes"] / whole["static_bytes"] < 0.7
    assert shared["workspace_bytes"] < whole["workspace_bytes"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["nix.yaml"], "nix.yaml: no such file", id="no-file"),
        pytest.param(["job.yaml", "--layers", "4"], "job.yaml: --layers is 4 and must be 1 to 3", id="layers"),
        pytest.param(["job.yaml", "--layers", "0"], "job.yaml: --layers is 0 and must be 1 to 3", id="no-layers"),
        pytest.param(["plan.yaml", "--layers", "1"], "plan.yaml: is a plan, which says how many", id="layers-of-plan"),
        pytest.param(["job.yaml", "--dc", "east"], "job.yaml: is a job, and --dc goes with a plan", id="dc-of-job"),
        pytest.param(["plan.yaml", "--dc", "wset"], "plan.yaml: --dc is 'wset' and must be", id="dc"),
        pytest.param(["wide.yaml"], "wide.yaml: tensor_parallel is 2 and there must be as many processes", id="wide"),
        pytest.param(
            ["job.yaml", "--repeat", "0"], "'--repeat': Input should be greater than or equal to 1", id="repeat"
        ),
    ],
)
def test_bad_input_is_one_sentence(geotrain, arguments: list[str], sentence: str):
    answer = geotrain("profile", *arguments, "--device", "cpu", "--write")
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert sentence in answer.err
    assert Path("job.yaml").read_text() == JOB


def test_too_large_a_model_is_not_begun(geotrain):
    Path("job.yaml").write_text("{model: llama-3.1-405b, global_batch: 8}")
    answer = geotrain("profile", "job.yaml", "--device", "cpu")
    assert answer.exit_code == 2
    assert answer.err.startswith("error: job.yaml: a stage of 126 layers takes about ")


def test_without_torch_it_says_what_to_install(geotrain, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = geotrain("profile", "job.yaml")
    assert (answer.exit_code, answer.err) == (2, "error: profile needs torch: pip install 'geotrain[train]'\n")
