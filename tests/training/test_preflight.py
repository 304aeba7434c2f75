from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.training.options import Options
from geotrain.training.preflight import check, check_plan
from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan


def test_fp16_is_not_trained_for_nothing_scales_its_loss_but_its_bytes_may_be_emulated():
    decided = plan(job={"precision": "fp16"})
    check_plan(decided, Options(dc="east", out=Path("run"), compute="emulated"))
    with pytest.raises(InputError, match="bf16 or fp32 can be trained"):
        check_plan(decided, Options(dc="east", out=Path("run"), data=Path("data")))


def test_damaged_data_is_refused_before_anybody_meets(tmp_path: Path):
    decided = plan(job={"model": MODEL | {"layers": 2, "vocab": VOCAB}})
    data = dataset(tmp_path)
    options = Options(dc="east", out=tmp_path / "run", data=data)
    check(decided, options)
    tokens = data / "tokens.bin"
    tokens.write_bytes(b"\xff\xff" + tokens.read_bytes()[2:])
    with pytest.raises(InputError, match=r"tokens.bin: is damaged: its checksum is not the one that was written"):
        check(decided, options)
