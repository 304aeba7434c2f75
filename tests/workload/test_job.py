from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.workload import MODELS, Job, StageProfile

OWN_MODEL = "model: {layers: 2, hidden: 8, heads: 2, vocab: 10}\n"


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str) -> Job:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return Job.load(path)

    return load


def test_a_catalog_name_is_enough_for_the_model_and_its_sequence(load):
    job = load("model: gpt-a\nmicrobatches: 4\n")
    assert (job.model, job.sequence, job.precision, job.recompute) == (MODELS["gpt-a"], 4096, "bf16", "full")


def test_a_catalog_model_can_be_changed(load):
    job = load("model: {name: gpt-a, layers: 48, sequence: 1024}\nmicrobatches: 4\n")
    assert job.model == MODELS["gpt-a"].model_copy(update={"layers": 48, "sequence": 1024})
    assert job.sequence == 1024


def test_the_jobs_own_sequence_wins(load):
    assert load("model: gpt-a\nsequence: 512\nmicrobatches: 4\n").sequence == 512


@pytest.mark.parametrize(
    ("written", "meant"),
    [("true", "full"), ("false", "none"), ("full", "full"), ("selective", "selective"), ("none", "none")],
)
def test_recompute_is_a_word_or_yes_and_no(load, written: str, meant: str):
    assert load(f"model: gpt-a\nmicrobatches: 4\nrecompute: {written}\n").recompute == meant


def test_a_profile_is_for_all_stages_or_one_for_each(load):
    same = load("model: gpt-a\nmicrobatches: 4\nprofile: {stage: {forward_s: 12.5 ms}}\n").profile
    each = load("model: gpt-a\nmicrobatches: 4\nprofile: {stage: [{forward_s: 1}, {forward_s: 2}]}\n").profile
    assert [same.of_stage(stage) for stage in (0, 1)] == [StageProfile(forward_s=0.0125)] * 2
    assert [each.of_stage(stage) for stage in (0, 1)] == [StageProfile(forward_s=1.0), StageProfile(forward_s=2.0)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            "model: gpt-a\nmicrobatches: 4\nglobal_batch: 64\n",
            "microbatches is 4 and global_batch is 64: give only one of them",
            id="two-batch-sizes",
        ),
        pytest.param("model: gpt-a\n", "microbatches is missing: give it, or global_batch", id="no-batch-size"),
        pytest.param(OWN_MODEL + "microbatches: 4\n", "sequence is missing", id="no-sequence"),
        pytest.param(
            "model: gpt-c\nmicrobatches: 4\n",
            "model is 'gpt-c' and is not in the model catalog: did you mean 'gpt-b'?",
            id="unknown-model",
        ),
        pytest.param(
            "model: {name: gpt-c, layers: 4}\nmicrobatches: 4\n",
            "model: name is 'gpt-c' and is not in the model catalog: did you mean 'gpt-b'?",
            id="unknown-model-changed",
        ),
        pytest.param(
            "model: {name: gpt-a, layer: 4}\nmicrobatches: 4\n",
            "model.layer is not a known field: did you mean 'layers'?",
            id="unknown-field-of-the-model",
        ),
        pytest.param(
            "model: gpt-a\nmicrobatches: 4\nsequence: -1\n", "sequence is -1 and must be at least 1", id="negative"
        ),
        pytest.param(
            "model: gpt-a\nmicrobatches: 4\nprofile: {stage: {backward_s: 1, weight_grad_s: 2}}\n",
            "profile.stage: weight_grad_s is 2 and must be at most backward_s, 1, of which it is a part",
            id="part-above-whole",
        ),
        pytest.param(
            "model: gpt-a\nmicrobatches: 4\nprofile: {stage: [{}, {forward_s: 12.5 mss}]}\n",
            "profile.stage[1].forward_s is '12.5 mss' and has the unknown unit 'mss': did you mean \"12.5 ms\"?",
            id="unit-in-one-of-many",
        ),
    ],
)
def test_mistakes_name_file_field_and_value(load, tmp_path: Path, text: str, sentence: str):
    with pytest.raises(InputError) as caught:
        load(text)
    assert str(caught.value) == f"{tmp_path / 'job.yaml'}: {sentence}"


def test_what_is_dumped_reads_back_as_the_same_job(load, tmp_path: Path):
    job = load("model: gpt-a\nglobal_batch: 64\nrecompute: false\nprofile: {boundary_bytes: 33 MB}\n")
    assert Job.parse(job.dump(), source=tmp_path / "again.yaml") == job
