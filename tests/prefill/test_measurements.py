from collections import Counter
from pathlib import Path

import pytest

from geotrain.cluster import GPUS
from geotrain.errors import InputError
from geotrain.prefill.measurements import Measurement, parse_table, published, read_table, write_table
from geotrain.workload import MODELS

HEADER = "model,gpu,tensor_parallel,new_tokens,cached_tokens,seconds,source\n"
ROW = "llama-3.1-8b,h100,1,512,0,0.012,lab\n"


def test_a_table_comes_back_as_it_was_written(tmp_path: Path):
    rows = [
        Measurement(
            model="small",
            gpu="cpu",
            tensor_parallel=2,
            new_tokens=512,
            cached_tokens=64,
            seconds=0.1234567890123,
            source="here, and now",
        )
    ] * 2
    write_table(tmp_path / "times.csv", rows)
    assert read_table(tmp_path / "times.csv") == rows


def test_milliseconds_names_in_any_case_comments_and_other_columns():
    text = (
        "\ufeff# May\n\nGPU,Model,weather,tensor_parallel,new_tokens,Milliseconds\n H100 ,LLAMA,fine,1,512.0,36\n,,\n"
    )
    (row,) = parse_table(text, source="times.csv")
    assert row == Measurement(
        model="llama", gpu="h100", tensor_parallel=1, new_tokens=512, cached_tokens=0, seconds=0.036, source="times.csv"
    )
    assert (row.setting, row.point) == (("llama", "h100", 1), (512, 0))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "is empty and must have a first line of column names", id="empty"),
        pytest.param(HEADER, "has no rows below its first line and must have at least one", id="no-rows"),
        pytest.param("model,gpu\n", "the first line has no column 'tensor_parallel'", id="column-missing"),
        pytest.param(
            HEADER.replace("new_tokens", "new_token"),
            "the first line has no column 'new_tokens'; did you mean it by 'new_token'?",
            id="column-misspelled",
        ),
        pytest.param("gpu," + HEADER, "the first line has the column 'gpu' twice", id="column-twice"),
        pytest.param(
            "milliseconds," + HEADER,
            "the first line has the columns 'seconds' and 'milliseconds': give one of them",
            id="two-units",
        ),
        pytest.param(HEADER + ROW.replace("h100", ""), "line 2: gpu is missing", id="cell-missing"),
        pytest.param(
            HEADER + ROW + ROW.replace("512", "many"),
            "line 3: new_tokens is 'many' and must be a whole number",
            id="no-number",
        ),
        pytest.param(
            HEADER + ROW.replace("512", "1.5"),
            "line 2: new_tokens is '1.5' and must be a whole number",
            id="half-token",
        ),
        pytest.param(
            HEADER + ROW.replace("512", "0"), "line 2: new_tokens is '0' and must be at least 1", id="no-token"
        ),
        pytest.param(
            HEADER + ROW.replace("512", "9" * 30),
            "line 2: new_tokens is '" + "9" * 30 + "' and must be at most 1e+09",
            id="too-many-tokens",
        ),
        pytest.param(
            HEADER + ROW.replace(",0,", ",-1,"), "line 2: cached_tokens is '-1' and must be at least 0", id="negative"
        ),
        pytest.param(HEADER + ROW.replace("0.012", "0"), "line 2: seconds is '0' and must be above 0", id="no-time"),
        pytest.param(
            HEADER + ROW.replace("0.012", "nan"), "line 2: seconds is 'nan' and must be a finite number", id="nan"
        ),
        pytest.param(
            HEADER + ROW.replace("0.012", "soon"), "line 2: seconds is 'soon' and must be a number", id="no-seconds"
        ),
        pytest.param(
            HEADER + ROW.replace("1,512", "x,y"),
            "line 2: tensor_parallel is 'x' and must be a whole number (and 1 more problem)",
            id="two-problems",
        ),
        pytest.param(
            HEADER + ROW.strip() + ",\n", "line 2 has 8 cells and must have 7, like the first line", id="too-many-cells"
        ),
        pytest.param(HEADER + '"' + ROW, "line 2 is not CSV: unexpected end of data", id="open-quote"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_sentence(text: str, sentence: str):
    with pytest.raises(InputError) as error:
        parse_table(text, source="times.csv")
    assert str(error.value) == f"times.csv: {sentence}"


def test_published_times_are_of_catalog_names_and_say_where_they_come_from():
    assert {(row.model in MODELS, row.gpu in GPUS, bool(row.source)) for row in published()} == {(True, True, True)}
    assert Counter(row.model for row in published()) == {"llama-3.1-8b": 14, "llama-3.1-70b": 28, "llama-2-70b": 30}
