from pathlib import Path
from typing import Any

import pytest

from geotrain.cluster import GPUS
from geotrain.errors import InputError
from geotrain.validation import Measured, published_rows, read_rows
from geotrain.validation.table import parse_rows
from geotrain.workload import Model
from tests.validation.rows import CELLS, make_row, table


def test_a_line_with_the_required_columns_takes_the_documented_defaults():
    assert make_row() == Measured(
        name="run",
        source="runs.csv",
        model=Model(name="run", layers=24, hidden=2048, heads=16, vocab=50000, tied_embeddings=True),
        sequence=2048,
        tensor_parallel=2,
        pipeline_parallel=2,
        data_parallel=2,
        microbatch=2,
        global_batch=64,
        gpu=GPUS["a100-80gb"],
        precision="bf16",
        recompute="full",
        interleave=1,
        gpus_per_node=8,
        attention="unfused",
        sequence_parallel=False,
        seconds=2.5,
    )
    assert make_row().num_gpus == 8
    assert make_row().num_microbatches == 16


@pytest.mark.parametrize(
    ("cells", "attribute", "value"),
    [
        pytest.param({"gpu": "h100"}, "attention", "fused", id="newer-gpus-fuse-attention"),
        pytest.param({"gpu": "h100", "attention": "unfused"}, "attention", "unfused", id="unless-told"),
        pytest.param({"recompute": "selective"}, "sequence_parallel", True, id="selective-is-sequence-parallel"),
        pytest.param({"recompute": "none"}, "sequence_parallel", True, id="none-too"),
        pytest.param({"recompute": "none", "tensor_parallel": 1}, "sequence_parallel", False, id="alone-it-is-not"),
        pytest.param({"sequence_parallel": "yes"}, "sequence_parallel", True, id="or-as-told"),
        pytest.param({"recompute": "True"}, "recompute", "full", id="true-is-full"),
        pytest.param({"precision": " FP16 "}, "precision", "fp16", id="any-case"),
        pytest.param({"layers": "24.0"}, "num_gpus", 8, id="whole-number-with-a-point"),
        pytest.param({"name": None}, "name", "line 2", id="no-name"),
        pytest.param({"source": "my lab"}, "source", "my lab", id="its-own-source"),
    ],
)
def test_what_a_line_says_and_what_follows(cells: dict[str, Any], attribute: str, value: object):
    assert getattr(make_row(**cells), attribute) == value


@pytest.mark.parametrize(
    ("cells", "activation"),
    [
        pytest.param({}, "gelu", id="left-out"),
        pytest.param({"ffn": 8192}, "gelu", id="four-times"),
        pytest.param({"ffn": 16384}, "gelu", id="eight-times"),
        pytest.param({"ffn": 5504}, "swiglu", id="llama"),
        pytest.param({"ffn": 10000}, "swiglu", id="more-but-no-multiple"),
        pytest.param({"ffn": 5504, "activation": "gelu"}, "gelu", id="as-told"),
    ],
)
def test_gated_models_are_known_by_their_ffn(cells: dict[str, Any], activation: str):
    assert make_row(**cells).model.activation == activation


def test_comments_blank_lines_byte_order_mark_and_other_columns_are_nothing():
    text = table({"weather": "fine"}, {"name": "second"})
    header, first, second = text.splitlines()
    noisy = f"\ufeff# measured in May\n\n{header.title()}\n{first}\n\n,,,\n# so far so good, she said\n{second}\n"
    assert parse_rows(noisy, source="runs.csv") == parse_rows(text, source="runs.csv")


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        pytest.param({"seconds": 0}, "line 2: seconds is '0' and must be above 0", id="no-time"),
        pytest.param({"seconds": "inf"}, "line 2: seconds is 'inf' and must be a number", id="endless"),
        pytest.param({"seconds": None}, "line 2: seconds is empty", id="empty"),
        pytest.param({"hidden": "2k"}, "line 2: hidden is '2k' and must be a number", id="not-a-number"),
        pytest.param(
            {"layers": 2.5}, "line 2: layers is '2.5' and must be a whole number of at least 1", id="half-a-layer"
        ),
        pytest.param(
            {"gpu": "a100"},
            "line 2: gpu is 'a100' and is not in the GPU catalog: did you mean 'a100-40gb' or 'a100-80gb'?",
            id="gpu",
        ),
        pytest.param(
            {"recompute": "some"},
            "line 2: recompute is 'some' and must be full, selective or none",
            id="recompute",
        ),
        pytest.param(
            {"gpu": "v100"},
            "line 2: precision 'bf16' is not supported by the GPU 'v100', which has fp16, fp32",
            id="precision",
        ),
        pytest.param(
            {"global_batch": 63},
            "line 2: global_batch is 63 and must be a multiple of microbatch x data_parallel, 4",
            id="batch",
        ),
        pytest.param(
            {"tensor_parallel": 3}, "line 2: heads is 16 and must be a multiple of tensor_parallel, 3", id="heads"
        ),
        pytest.param(
            {"pipeline_parallel": 32}, "line 2: pipeline_parallel is 32 and must be at most layers, 24", id="stages"
        ),
        pytest.param(
            {"kv_heads": 5}, "line 2: heads is 16 and must be a multiple of kv_heads, 5", id="kv-heads"
        ),
        pytest.param(
            {"sequence_parallel": "maybe"}, "line 2: sequence_parallel is 'maybe' and must be true or false", id="flag"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_by_line_and_column(cells: dict[str, Any], sentence: str):
    with pytest.raises(InputError) as caught:
        make_row(**cells)
    assert str(caught.value) == f"runs.csv: {sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "is empty and must have a first line of column names", id="nothing"),
        pytest.param(table(), "has no rows below its first line and must have at least one", id="no-rows"),
        pytest.param(
            table({}).replace("seconds", "second"),
            "the first line has no column 'seconds'; did you mean 'seconds' by 'second'?",
            id="misspelled",
        ),
        pytest.param("name,layers\na,1\n", "the first line has no column 'hidden', 'heads', ", id="not-ours"),
        pytest.param(table({"layers ": 1}), "the first line has the column 'layers' twice", id="twice"),
        pytest.param(table({}) + "a" + ",1" * 20 + "\n", "line 3 has 21 cells and must have 15", id="too-many"),
        pytest.param(table({}) + '"open\n', "line 3 is not CSV: ", id="open-quote"),
        pytest.param(
            table({"seconds": -1}, {}, {"heads": 0}, {"gpu": "h1000"}),
            "line 2: seconds is '-1' and must be above 0 (and 2 more lines with problems)",
            id="several",
        ),
    ],
)
def test_a_table_that_is_none_says_why(text: str, sentence: str):
    with pytest.raises(InputError) as caught:
        parse_rows(text, source="runs.csv")
    assert str(caught.value).startswith(f"runs.csv: {sentence}")


def test_a_file_is_read_and_named(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text(table({}))
    assert [row.name for row in read_rows(path)] == ["run"]
    with pytest.raises(InputError, match=r"gone\.csv: no such file"):
        read_rows(tmp_path / "gone.csv")


def test_the_published_rows_are_the_two_papers_and_each_has_a_source():
    rows = published_rows()
    assert [row.name.split()[0] for row in rows] == ["Megatron"] * 10 + ["Korthikanti"] * 8
    assert all("arXiv" in row.source and "table" in row.source for row in rows)
    assert [row.num_gpus for row in rows[:10]] == [32, 64, 128, 256, 512, 1024, 1536, 1920, 2520, 3072]
    assert CELLS.keys() - {"name"} <= set(dir(rows[0])) | {"layers", "hidden", "heads", "vocab"}
