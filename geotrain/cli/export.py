"""`geotrain export`: the model of a run's checkpoint, in files that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geotrain.cli._model import chosen_step
from geotrain.cli._output import JsonOption, print_json


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run, as `geotrain train --out` has it.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the model goes.")],
    step: Annotated[str, typer.Option(metavar="N|latest", help="Which checkpoint.")] = "latest",
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data set that was trained on: its tokenizer goes along.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint's model as a Hugging Face directory.

    config.json and model.safetensors, as `geotrain train` leaves them at its end in RUN/model. This is for a step
    before the end, or for a run whose data centers keep checkpoints apart: copy their RUN/checkpoints into one
    directory, and all stages are together. One stage at a time is in memory.

    Examples:

        geotrain export run --out model --data data

        geotrain generate model 'import '

        geotrain export run --step 200 --out model-200
    """
    from geotrain.errors import InputError

    try:
        import torch  # noqa: F401
    except ImportError:
        raise InputError("export needs torch: pip install 'geotrain[train]'") from None
    from geotrain.files import read_text, write_text
    from geotrain.tokens import Manifest
    from geotrain.tokens.manifest import TOKENIZER
    from geotrain.training.checkpoint import export

    chosen = chosen_step(run / "checkpoints", step)
    if data is not None:
        vocab, room = Manifest.of(data).vocab_size, chosen.stages[0].manifest.model.vocab_size
        if vocab > room:
            raise InputError(f"{data}: has a vocabulary of {vocab} and must have at most the model's {room}")
    export(run / "checkpoints", chosen.id.step, out)
    if data is not None:
        write_text(out / TOKENIZER, read_text(data / TOKENIZER))
    if json:
        print_json({"directory": str(out), "step": chosen.id.step, "tokenizer": data is not None})
    else:
        typer.echo(f"wrote {out}: the model after step {chosen.id.step}")
        if data is None:
            typer.echo("without tokenizer.json; --data DIR adds the data set's")
