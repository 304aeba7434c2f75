"""`geotrain data`: text into token files to train on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain.cli._output import JsonOption, print_json

if TYPE_CHECKING:
    from geotrain.tokens.texts import Watch

_VOCAB = 8192


def command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The data set to make.")],
    text: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TEXT", help="Files, or directories of files.", show_default=False),
    ] = None,
    stdlib: Annotated[
        bool, typer.Option("--stdlib", help="Take the sources of Python's standard library, without its tests.")
    ] = False,
    glob: Annotated[
        str, typer.Option(metavar="PATTERN", help="Which files of a directory to take, by name: '*.py'.")
    ] = "*",
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this tokenizer.json, of any Hugging Face model.")
    ] = None,
    train_bpe: Annotated[
        int | None,
        typer.Option(
            metavar="VOCAB",
            min=257,
            max=1_000_000,
            help=f"Learn a byte-level BPE of so many tokens; {_VOCAB} if no tokenizer is given.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="What FILE calls the end of a text, where that has no usual name."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a data set that exists.")] = False,
    json: JsonOption = False,
) -> None:
    """Turn text into tokens to train on.

    Every file is one document and gets an end-of-text token. Directories are walked in sorted order, without hidden
    files; what is not UTF-8 text is skipped and counted. Texts may be larger than memory: they are read in pieces.

    DIR gets tokens.bin (ids of 2 bytes, or 4 if the vocabulary is above 65536), tokens.json (what is in it, with
    checksums) and tokenizer.json. It appears when it is complete; after a failure nothing is left.

    Examples:

        geotrain data --stdlib --out data --train-bpe 2000

        geotrain data notes.txt src --glob '*.py' --out data

        geotrain data corpus --out data --tokenizer Llama-3/tokenizer.json

        geotrain data held-out --out check --tokenizer data/tokenizer.json

    The first takes text that every machine has; the last turns more text into tokens of the first one's vocabulary. The
    model of a job that trains on it needs a `vocab` that is at least as large.
    """
    from geotrain.errors import InputError

    try:
        from geotrain.tokens.build import build, check_target, learn
        from geotrain.tokens.tokenizer import Tokenizer
    except ImportError:
        raise InputError("data needs the package tokenizers: pip install 'geotrain[train]'") from None
    from geotrain.tokens.texts import Tree, find_texts, standard_library

    trees = [Tree(path=path, glob=glob) for path in text or []] + [standard_library()] * stdlib
    if not trees:
        raise InputError("give TEXT, files or directories, or --stdlib")
    if tokenizer is not None and train_bpe is not None:
        raise InputError("give --tokenizer FILE or --train-bpe VOCAB, not both")
    if end is not None and tokenizer is None:
        raise InputError("--end names a token of --tokenizer FILE, which is not given")
    check_target(out, force=force)
    words = None if tokenizer is None else Tokenizer.read(tokenizer, end=end)
    with _shown(wanted=not json) as watch:
        texts = find_texts(trees, avoid=out, watch=watch)
        if words is None:
            words = learn(texts, vocab_size=_VOCAB if train_bpe is None else train_bpe, watch=watch)
        manifest = build(texts, words, out, force=force, watch=watch)

    if json:
        figures = {"text_bytes": texts.size_bytes, "skipped": texts.skipped}
        print_json({"directory": str(out), **manifest.dump(), **figures})
        return

    from geotrain.units import format_traffic

    documents = f"{manifest.num_documents:,} document{'s' * (manifest.num_documents > 1)}"
    typer.echo(
        f"wrote {out}: {manifest.num_tokens:,} tokens of {documents}, {format_traffic(texts.size_bytes)} of text"
    )
    typer.echo(f"vocabulary {manifest.vocab_size:,}, {texts.size_bytes / manifest.num_tokens:.2f} bytes per token")
    if texts.skipped:
        typer.echo("skipped: " + ", ".join(f"{number:,} {reason}" for reason, number in texts.skipped.items()))


@contextmanager
def _shown(*, wanted: bool) -> Iterator[Watch]:
    """A bar on a terminal; elsewhere nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (wanted and console.is_terminal):
        yield lambda what, done_bytes, total_bytes: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:

        def watch(what: str, done_bytes: int, total_bytes: int | None) -> None:
            for task in progress.tasks:
                if task.description != what:
                    progress.remove_task(task.id)
            task_id = progress.task_ids[0] if progress.task_ids else progress.add_task(what, total=total_bytes)
            progress.update(task_id, completed=done_bytes)

        yield watch
