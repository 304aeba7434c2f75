"""A small served model on disk, and prompts on their way through its shards into a decoder."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch

from geotrain.model import Config, Part, weights
from geotrain.model.generate import choice
from geotrain.serving.contract import Piece, Sampling
from geotrain.serving.decoding import Decoder
from geotrain.serving.shard import Chunk, Shard
from geotrain.tokens.tokenizer import Tokenizer
from tests.model.tiny import config, filled, tokens

WORDS = Tokenizer.train(["the sea, the open sea: größer, 海\n"], vocab_size=280)
SHAPE = config(
    num_hidden_layers=4,
    hidden_size=32,
    vocab_size=WORDS.vocab_size,
    max_position_embeddings=2100,
    initializer_range=0.4,
)


def write(directory: Path, shape: Config = SHAPE) -> Part:
    directory.mkdir(exist_ok=True)
    part = filled(shape)
    weights.save(directory, shape, part.named_parameters())
    return part


def shards(directory: Path, degree: int) -> list[Shard]:
    """All layers, over so many slots."""
    total = Config.load(directory / "config.json").num_hidden_layers
    edges = [total * number // degree for number in range(degree + 1)]
    return [Shard.load(directory, first, last) for first, last in pairwise(edges)]


def prompt(length: int) -> list[int]:
    ids: list[int] = tokens(SHAPE, length, seed=length).tolist()
    return ids


def decoder(part: Part, limit_bytes: float = 1e9, stop_ids: Sequence[int] = ()) -> Decoder:
    return Decoder(part, WORDS, limit_bytes=limit_bytes, stop_ids=stop_ids)


def prefill(
    chain: Sequence[Shard],
    prompts: Mapping[str, Sequence[int]],
    sampling: Sampling,
    decoder: Decoder,
    *,
    chunk: int = 10_000,
) -> dict[str, Piece]:
    """All prompts together, in chunks, into the decoder; what the first tokens brought."""
    for request, ids in prompts.items():
        decoder.reserve(request, ids, sampling)
        for shard in chain:
            shard.start(request, len(ids))
    pieces = {}
    for start in range(0, max(map(len, prompts.values())), chunk):
        chunks = [
            Chunk(
                request=request,
                x=torch.tensor(ids[start : start + chunk]),
                position=start,
                is_last=start + chunk >= len(ids),
            )
            for request, ids in prompts.items()
            if start < len(ids)
        ]
        for shard in chain:
            chunks, ended = hop(shard, chunks, decoder.receive)
        for request, logits in ended.items():
            first = choice(logits, temperature=sampling.temperature, top_p=sampling.top_p, seed=sampling.seed, number=0)
            pieces[request] = decoder.join(request, first)
            for shard in chain:
                shard.release(request)
    return pieces


def hop(
    shard: Shard, chunks: Sequence[Chunk], push: Callable[[str, int, int, torch.Tensor], None]
) -> tuple[list[Chunk], dict[str, torch.Tensor]]:
    """Through one shard, keys and values pushed layer by layer: what goes on to the next, and logits of the ended."""
    units = shard.run(chunks)
    for layer in units:
        for one in chunks:
            push(
                one.request, layer, one.position, shard.kv(one.request, layer, one.position, one.position + len(one.x))
            )
    out = [(one, x) for one, x in zip(chunks, units.out, strict=True) if x is not None]
    if shard.part.heads:
        return [], {one.request: x for one, x in out}
    return [Chunk(request=one.request, x=x, position=one.position, is_last=one.is_last) for one, x in out], {}


def decode(decoder: Decoder, pieces: Mapping[str, Piece]) -> dict[str, list[Piece]]:
    """To the end of all answers that began with these pieces."""
    answers = {request: [piece] for request, piece in pieces.items()}
    while decoder.running:
        for request, piece in decoder.step().items():
            assert isinstance(piece, Piece)
            answers[request].append(piece)
    return answers


def ids_of(pieces: Sequence[Piece]) -> list[int]:
    return [piece.token for piece in pieces if piece.token is not None]
