import json

import pytest

from geotrain.cli._output import print_json


def test_json_keeps_the_order_and_every_bit_and_has_no_infinity(capsys: pytest.CaptureFixture[str]):
    print_json({"b": 0.1 + 0.2, "a": [1, (float("inf"), float("nan"))], "name": "µ"})
    out = capsys.readouterr().out
    assert list(json.loads(out).items()) == [("b", 0.1 + 0.2), ("a", [1, [None, None]]), ("name", "µ")]
    assert out.startswith('{\n  "b": 0.30000000000000004,\n')
