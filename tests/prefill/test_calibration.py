from pathlib import Path
from typing import Any

import pytest
import yaml

from geotrain.cluster import GPUS
from geotrain.errors import InputError
from geotrain.prefill.calibration import Calibration, Calibrations, calibrate, prefill_time
from geotrain.prefill.measurements import Measurement, published
from geotrain.prefill.predictor import PrefillTime
from geotrain.workload import MODELS

LLAMA = MODELS["llama-3.1-8b"]


def measured(time: PrefillTime, *points: tuple[int, int], **fields: Any) -> list[Measurement]:
    usual: dict[str, Any] = {"model": "small", "gpu": "cpu", "tensor_parallel": 1, "source": "here"}
    return [
        Measurement(**(usual | fields), new_tokens=new, cached_tokens=cached, seconds=time.seconds(new, cached))
        for new, cached in points
    ]


def test_each_model_gpu_and_degree_has_a_fit_of_its_own(tmp_path: Path):
    slow, fast = PrefillTime(fixed_s=0.25, per_token_s=0.5), PrefillTime(fixed_s=0.125, per_token_s=0.25)
    points = (1, 0), (2, 0), (4, 0), (8, 4), (2, 8)
    found = calibrate(
        measured(slow, *points) + measured(fast, *points, tensor_parallel=2) + measured(fast, (2, 0), gpu="h100")
    )
    assert [one.calibration.setting for one in found] == [
        ("small", "cpu", 1),
        ("small", "cpu", 2),
        ("small", "h100", 1),
    ]
    first, second, alone = (one.calibration for one in found)
    assert (first.fixed_s, first.per_token_s, first.rows) == (0.25, 0.5, 5)
    assert (second.fixed_s, second.per_token_s) == (0.125, 0.25)
    assert first.error and first.error.worst < 1e-6
    assert (alone.per_token_s, alone.error) == (0.3125, None)

    file = Calibrations(calibrations=(first, second, alone))
    file.save(tmp_path / "prefill.yaml")
    assert Calibrations.load(tmp_path / "prefill.yaml") == file


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"fixed_s": "soon"}, "fixed_s is 'soon' and must be a time such as '40 ms'", id="no-time"),
        pytest.param({"per_pair_s": -1.0}, "per_pair_s is -1.0 and must be at least 0", id="negative"),
        pytest.param({"tensor_parallel": 0}, "tensor_parallel is 0 and must be at least 1", id="no-gpus"),
        pytest.param({"spread": []}, "spread is a list of 0 and must be a list of at least 1", id="no-spread"),
        pytest.param(
            {"spread": [[0.5, 1.0], [0.5, 1.1]]},
            "spread is a list of 2 and must have rising quantiles with factors that do not fall",
            id="same-quantile",
        ),
        pytest.param(
            {"spread": [[0.5, 1.1], [0.9, 1.0]]},
            "spread is a list of 2 and must have rising quantiles with factors that do not fall",
            id="falling-factor",
        ),
        pytest.param(
            {"spread": [[0.5, 1.0], [95, 1.1]]},
            "spread is a list of 2 and must have quantiles from 0 to 1 and factors above 0",
            id="percent",
        ),
        pytest.param({"colour": "red"}, "colour is not a known field", id="unknown-field"),
        pytest.param(
            {"fixed_s": 0, "per_token_s": 0},
            "fixed_s, per_token_s and per_pair_s are 0 and one of them must be above 0",
            id="no-time-at-all",
        ),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str):
    entry = {"model": "m", "gpu": "g", "tensor_parallel": 1, "fixed_s": "8 ms", "per_token_s": 5e-5} | changes
    path = tmp_path / "prefill.yaml"
    path.write_text(yaml.safe_dump({"calibrations": [entry]}))
    with pytest.raises(InputError) as error:
        Calibrations.load(path)
    assert str(error.value).startswith(f"{path}: calibrations[0]") and sentence in str(error.value)


def test_a_setting_may_not_be_there_twice(tmp_path: Path):
    path, entry = tmp_path / "prefill.yaml", {"model": "m", "gpu": "g", "tensor_parallel": 2, "fixed_s": 1}
    path.write_text(yaml.safe_dump({"calibrations": [entry, entry]}))
    with pytest.raises(InputError, match=r"prefill.yaml: calibrations has m on g, tensor_parallel 2, twice$"):
        Calibrations.load(path)


def test_a_persons_own_calibration_comes_first():
    own = Calibration(model="Llama-3.1-8B", gpu="H100", tensor_parallel=1, per_token_s=1e-3, source="my lab")
    calibrations = Calibrations(calibrations=(own,))
    assert prefill_time(LLAMA, GPUS["h100"], 1, calibrations) == (own.time, "calibration: my lab")
    assert prefill_time(LLAMA, GPUS["h100"], 2, calibrations) == prefill_time(LLAMA, GPUS["h100"], 2)


def test_published_times_come_second_for_whatever_has_the_shape_of_their_model():
    time, source = prefill_time(LLAMA, GPUS["a100-80gb"], 1)
    assert source == "published times: aiconfigurator 0.12.0 kernel tables (vLLM 0.24)"
    assert time.seconds(2048) == pytest.approx(0.125, rel=0.01)
    renamed = LLAMA.model_copy(update={"name": "ours", "sequence": 100})
    assert prefill_time(renamed, GPUS["a100-80gb"], 1) == (time, source)
    deeper = LLAMA.model_copy(update={"layers": 64})
    other, source = prefill_time(deeper, GPUS["a100-80gb"], 1)
    assert source.startswith("formulas")
    assert 1.7 < other.seconds(2048) / time.seconds(2048) < 2.5


def test_published_times_are_not_those_of_a_gpu_with_other_figures():
    a100 = GPUS["a100-80gb"]
    known = prefill_time(LLAMA, a100, 1)
    assert prefill_time(LLAMA, a100.model_copy(update={"memory_bytes": 64e9}), 1) == known
    slow = a100.model_copy(update={"bf16": (a100.bf16 or 0.0) / 4, "memory_bandwidth": a100.memory_bandwidth / 4})
    time, source = prefill_time(LLAMA, slow, 1)
    assert source.startswith("formulas")
    assert time.seconds(2048) > 2 * known[0].seconds(2048)


def test_published_times_are_fitted_well_where_the_software_is_current():
    for calibration in (one.calibration for one in calibrate(published())):
        assert calibration.unknown == ("per_cached_s",)
        assert calibration.error is not None
        if calibration.model != "llama-2-70b":
            assert calibration.error.mean < 0.05 and calibration.error.worst < 0.1
            assert 1 < calibration.time.factor(0.95) < 1.15
