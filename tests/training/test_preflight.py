from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.training.options import Options
from geotrain.training.preflight import check_plan
from tests.training.plans import plan


def test_fp16_is_not_trained_for_nothing_scales_its_loss_but_its_bytes_may_be_emulated():
    decided = plan(job={"precision": "fp16"})
    check_plan(decided, Options(dc="east", out=Path("run"), compute="emulated"))
    with pytest.raises(InputError, match="bf16 or fp32 can be trained"):
        check_plan(decided, Options(dc="east", out=Path("run"), data=Path("data")))
