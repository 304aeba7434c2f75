import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]


def test_bf16_gradients_are_those_of_fp32_but_for_rounding_and_a_split_backward_gives_the_same():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.training.mixed"],
        cwd=ROOT,
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["furthest"] < 0.1
    assert found["split is whole"]
