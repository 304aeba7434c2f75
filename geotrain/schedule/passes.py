"""Passes over fixed orders: small rewrites that every static schedule shares."""

from collections.abc import Iterable, Iterator

from geotrain.action import KIND_MASK, STAGE_SHIFT, Kind


def with_recompute(order: Iterable[int], last_stage: int) -> Iterator[int]:
    """Put R right before each B, so that it runs while the gradient is on its way.

    Not where the model's last stage goes straight from F to the B of the same microbatch: nothing was dropped yet.
    """
    previous = -1
    for code in order:
        if code & KIND_MASK == Kind.B:
            same = code - Kind.B
            if not (code >> STAGE_SHIFT == last_stage and previous == same + Kind.F):
                yield same + Kind.R
        yield code
        previous = code


def finish(order: Iterable[int], *, recompute: bool, last_stage: int) -> Iterable[int]:
    """The order as it is played."""
    return with_recompute(order, last_stage) if recompute else order
