"""Writing a profile into a file changes the profile and nothing else."""

from pathlib import Path
from textwrap import indent

import pytest

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.training.jobfile import JobFile
from geotrain.workload import Job, Profile, StageProfile

HEAD = """# mine
model: {layers: 2, hidden: 64, heads: 4, ffn: 128, vocab: 99}   # small
sequence: 32
microbatches: 4
"""
CLUSTER = """cluster: {name: c, datacenters: [{name: east, nodes: 2, gpu: a100-80gb}]}  # c
stages: [{dc: east, layers: 1}, {dc: east, layers: 1}]
"""
ONE = "{forward_s: 12.5 ms, backward_s: 25 ms, activation_bytes: 33554432}"
TWO = "{forward_s: 2 s, activation_bytes: 0}"
REST = "  boundary_bytes: 1000\n  gradient_bytes: 2000\n  optimizer_s: 3 us\n"
FLOW = "boundary_bytes: 1000, gradient_bytes: 2000, optimizer_s: 3 us"

CASES = {
    "none": ("", f"profile:\n  stage:\n    - {ONE}\n    - {TWO}\n{REST}"),
    "comment-below": (
        "precision: bf16   # b\n# profile: later\n",
        f"precision: bf16   # b\nprofile:\n  stage:\n    - {ONE}\n    - {TWO}\n{REST}# profile: later\n",
    ),
    "empty": (
        "profile: {}\nprecision: bf16\n",
        f"profile:\n  stage:\n    - {ONE}\n    - {TWO}\n{REST}precision: bf16\n",
    ),
    "flow": (
        "profile: {stage: {forward_s: 1 s}, optimizer_s: 7 s}  # p\n",
        f"profile: {{stage: [{ONE}, {TWO}], optimizer_s: 3 us, boundary_bytes: 1000, gradient_bytes: 2000}}  # p\n",
    ),
    "block": (
        "profile:\n  optimizer_s: 7 s  # o\n  # stages:\n  stage:\n    forward_s: 1 s\n    backward_s: 3 s  # b\n"
        "  boundary_bytes: 5 MB   # bb\n\noptimizer: adam\n",
        f"profile:\n  optimizer_s: 3 us  # o\n  # stages:\n  stage:\n    - {ONE}\n    - {TWO}  # b\n"
        "  boundary_bytes: 1000   # bb\n  gradient_bytes: 2000\n\noptimizer: adam\n",
    ),
    "list": (
        "profile:\n  stage:\n  - {forward_s: 1 s}\n  - {forward_s: 2 s}\n  - {forward_s: 3 s}\n",
        f"profile:\n  stage:\n    - {ONE}\n    - {TWO}\n{REST}",
    ),
}


def profile(*, single: bool = False) -> Profile:
    one = StageProfile(forward_s=0.0125, backward_s=0.025, activation_bytes=1 << 25)
    stages = [one, StageProfile(forward_s=2.0, activation_bytes=0)]
    return Profile(stage=one if single else stages, boundary_bytes=1000, gradient_bytes=2000, optimizer_s=3e-6)


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_only_the_profile_changes(tmp_path: Path, before: str, after: str):
    path = tmp_path / "job.yaml"
    path.write_text(HEAD + before)
    JobFile.open(path).write(profile())
    assert path.read_text() == HEAD + after
    assert Job.load(path).profile == profile()
    JobFile.open(path).write(profile())
    assert path.read_text() == HEAD + after
    JobFile.open(path).write(profile(single=True))
    assert Job.load(path).profile == profile(single=True)


def test_a_job_inside_a_plan_is_written_there(tmp_path: Path):
    path, job = tmp_path / "plan.yaml", indent(HEAD, "  ")
    path.write_text(f"job:\n{job}\n{CLUSTER}")
    JobFile.open(path).write(profile())
    rows = indent(f"profile:\n  stage:\n    - {ONE}\n    - {TWO}\n{REST}", "  ")
    assert path.read_text() == f"job:\n{job}{rows}\n{CLUSTER}"
    assert Plan.load(path).job.profile == JobFile.open(path).job.profile == profile()


def test_a_profile_of_another_number_of_stages_is_no_hindrance(tmp_path: Path):
    job, path = tmp_path / "job.yaml", tmp_path / "plan.yaml"
    job.write_text(HEAD + "profile: {stage: [{}, {}, {}]}\n")
    path.write_text(f"job: job.yaml\n{CLUSTER}")
    with pytest.raises(InputError, match=r"must have 3, like profile.stage"):
        Plan.load(path)
    found = JobFile.open(path)
    assert found.path == job and found.plan is not None and len(found.plan.stages) == 2
    found.write(profile())
    assert Plan.load(path).job.profile == profile()


def test_a_text_that_is_tied_together_is_left_alone(tmp_path: Path):
    path = tmp_path / "job.yaml"
    tied = HEAD + "profile: &p\n  stage: {forward_s: &f 1 s, backward_s: *f}\n  optimizer_s: *f\n"
    path.write_text(tied)
    with pytest.raises(InputError, match=r"is not changed by itself; write under profile: \{stage: \[\{forward_s: 12"):
        JobFile.open(path).write(profile())
    assert path.read_text() == tied


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("[1, 2]\n", "must be a mapping of fields, but is a list", id="list"),
        pytest.param(HEAD + "stagse: 2\n", "stagse", id="job-field"),
        pytest.param(HEAD + "profile: 7\n", "profile is 7 and must be a mapping", id="profile"),
        pytest.param(f"job: nix.yaml\n{CLUSTER}", "must be a file beside the plan: .*nix.yaml does not", id="no-job"),
        pytest.param(f"job: 7\n{CLUSTER}", "job is 7 and must be", id="job-of-what"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, text: str, sentence: str):
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence) as refused:
        JobFile.open(path)
    assert str(refused.value).startswith(str(path))
