import importlib
import importlib.util

import pytest


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is here")
def test_without_vllm_it_says_what_is_missing():
    with pytest.raises(ImportError, match=r"this connector is for vLLM 0\.32; .* No module named 'vllm'"):
        importlib.import_module("geotrain.serving.vllm.connector")
