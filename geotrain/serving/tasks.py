"""What a booking is to those who carry it out: a task for every chunk and slot, and a start for the decoder."""

from array import array
from collections.abc import Iterator, Sequence

from geotrain.prefill.booking import Booking
from geotrain.serving.contract import Prompt
from geotrain.serving.messages import DecodeStart, Slice, Task, Tensor

_SELDOM = 0.95


def start(prompt: Prompt) -> tuple[DecodeStart, bytes]:
    """What the decoder must know of a request before its keys and values come."""
    about, ids = _ids(prompt.tokens)
    return DecodeStart(request=prompt.id, sampling=prompt.sampling, tensor=about), ids


def tasks(
    booking: Booking, prompts: Sequence[Prompt], *, chunk_tokens: int, addresses: Sequence[str], decoder: str
) -> Iterator[tuple[int, Task, bytes]]:
    """By place in the booking; `addresses` of its slots, in order. The first slot gets the tokens."""
    spans = booking.spans
    for chunk, parts in enumerate(_parts(booking, prompts, chunk_tokens)):
        about, ids = _ids([token for prompt, one in parts for token in _tokens(prompt, one)])
        for place in range(len(addresses)):
            task = Task(
                booking=booking.number,
                place=place,
                layers=spans[place],
                chunk=chunk,
                slices=tuple(one for _, one in parts),
                unit_s=booking.unit_s[chunk],
                seldom_s=booking.unit_s[chunk] * booking.kind.time.factor(_SELDOM),
                next=addresses[place + 1] if place + 1 < len(addresses) else None,
                decoder=decoder,
                tensor=None if place else about,
            )
            yield place, task, b"" if place else ids


def _parts(booking: Booking, prompts: Sequence[Prompt], chunk_tokens: int) -> list[list[tuple[Prompt, Slice]]]:
    """By chunk: a batch is one, a long prompt several."""
    if len(prompts) > 1:
        return [[(prompt, _slice(prompt, len(prompt.tokens), 0)) for prompt in prompts]]
    prompt = prompts[0]
    pieces = booking.kind.time.chunks(len(prompt.tokens), 0, chunk_tokens)
    return [[(prompt, _slice(prompt, new, cached))] for new, cached in pieces]


def _slice(prompt: Prompt, tokens: int, position: int) -> Slice:
    whole = len(prompt.tokens)
    return Slice(
        request=prompt.id,
        position=position,
        tokens=tokens,
        prompt_tokens=whole,
        sampling=prompt.sampling if position + tokens == whole else None,
    )


def _tokens(prompt: Prompt, part: Slice) -> Sequence[int]:
    return prompt.tokens[part.position : part.position + part.tokens]


def _ids(tokens: Sequence[int]) -> tuple[Tensor, bytes]:
    return Tensor(dtype="int64", shape=(len(tokens),)), array("q", tokens).tobytes()
