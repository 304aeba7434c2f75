"""`geotrain generate`: text from a trained model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain.cli._model import model_directory
from geotrain.cli._output import JsonOption, print_json

if TYPE_CHECKING:
    from geotrain.tokens.tokenizer import Tokenizer

_TOKENS = 128


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Hugging Face directory, or that of a run.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="How the text begins; '' begins a new one.")],
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"The most to add; {_TOKENS}, or what the model has room for, if not given."),
    ] = None,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0 takes the likeliest token; higher is more varied.")
    ] = 0.8,
    top_p: Annotated[float, typer.Option(metavar="P", help="Of the likeliest tokens that have P together.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=(1 << 32) - 1, help="The same seed, the same text.")] = 0,
    end: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="What ends a text, where the tokenizer has no usual name for it."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print how a model goes on from a prompt, token by token.

    MODEL has config.json, model.safetensors (or several and an index) and tokenizer.json: what `geotrain train` leaves
    in RUN/model, what `geotrain export` writes, or a Llama, Qwen2.5, Qwen3 or Mistral of Hugging Face.
    RUN means RUN/model.

    Examples:

        geotrain generate run 'def main('

        geotrain generate run/model 'import ' --max-tokens 40 --temperature 0

        geotrain generate Llama-3.2-1B 'The sea' --top-p 0.9 --seed 7 --json | jq -r .text
    """
    from geotrain.errors import InputError

    try:
        import safetensors  # noqa: F401
        import torch

        from geotrain.tokens.tokenizer import Tokenizer
    except ImportError:
        raise InputError("generate needs torch, safetensors and tokenizers: pip install 'geotrain[train]'") from None
    from geotrain.model import Config, Part, generate, weights

    directory = model_directory(model)
    config = Config.load(directory / "config.json")
    tokenizer = Tokenizer.read(directory / "tokenizer.json", end=end)
    begin = [] if config.bos_token_id is None else [config.bos_token_id]
    ids = [*begin, *tokenizer.encode(prompt)] or [tokenizer.end_id]
    room = max(0, config.max_position_embeddings - len(ids))
    most = min(_TOKENS, room) if max_tokens is None else max_tokens
    part = Part(config)
    weights.load(part, directory)
    part.to("cuda" if torch.cuda.is_available() else "cpu")
    tokens = generate(
        part,
        ids,
        max_new_tokens=most,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        stop={*config.stop_ids, tokenizer.end_id},
    )
    if not json:
        for piece in pieces(tokenizer, ids, tokens):
            typer.echo(piece, nl=False)
        typer.echo()
        return
    found = list(tokens)
    text = "".join(pieces(tokenizer, ids, found))
    answer = {"model": str(directory), "prompt": prompt, "text": text, "tokens": found, "prompt_tokens": ids}
    print_json({**answer, "ended": len(found) < most})


def pieces(tokenizer: Tokenizer, before: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
    """The text of tokens as they come, in whole characters; `before` says what they follow on."""
    from geotrain.tokens.detokenizer import Detokenizer

    words = Detokenizer(tokenizer, before)
    for token in tokens:
        if text := words.add(token):
            yield text
    yield words.rest()
