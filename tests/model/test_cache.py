import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.model import Cache, Row
from tests.model.tiny import config, filled, tokens

SHAPE = config(initializer_range=0.2)
PART = filled(SHAPE)


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=4))
@settings(max_examples=30)
def test_sequences_in_one_row_do_not_see_each_other(turns: list[list[int]]):
    """Each sequence brings some tokens in every turn, or none."""
    turns = [(turn + [0] * 4)[:4] for turn in turns]
    ids = [tokens(SHAPE, sum(turn), seed=number) for number, turn in enumerate(turns)]
    caches = [Cache(len(each), block=3) for each in ids]
    found: list[list[torch.Tensor]] = [[] for _ in turns]
    for number in range(4):
        taking = [one for one, turn in enumerate(turns) if turn[number]]
        if not taking:
            continue
        new = [turns[one][number] for one in taking]
        mine = [caches[one] for one in taking]
        row = torch.cat([ids[one][caches[one].length :][: turns[one][number]] for one in taking])
        with torch.no_grad():
            out = PART.hidden(row[None], Row(mine, new))
        for one, hidden in zip(taking, torch.split(out[0], new), strict=True):
            found[one].append(hidden)
    for each, cache, pieces in zip(ids, caches, found, strict=True):
        assert cache.length == len(each)
        if pieces:
            torch.testing.assert_close(torch.cat(pieces), PART.hidden(each[None])[0], rtol=1e-4, atol=1e-4)


def test_memory_grows_by_blocks_up_to_the_capacity():
    cache = Cache(10, block=4)
    sizes = []
    for token in tokens(SHAPE, 10):
        PART.hidden(token.view(1, 1), cache)
        sizes.append(cache.layers[1].shape[3])
    assert sizes == [4] * 4 + [8] * 4 + [10] * 2


def test_layers_run_one_by_one_and_may_be_run_again():
    ids = tokens(SHAPE, 1, 6)
    cache = Cache(6)
    given_up = PART.layerwise(PART.embed(ids), cache)
    next(given_up)
    next(given_up)
    assert (cache.length, list(cache.layers)) == (0, [0, 1])
    *_, last = PART.layerwise(PART.embed(ids), cache)
    assert torch.equal(last, PART.hidden(ids))
    assert len(list(PART.layerwise(PART.embed(ids)))) == SHAPE.num_hidden_layers


def test_a_row_has_the_tokens_that_it_was_made_for():
    with pytest.raises(AssertionError, match=r"5 tokens for sequences with \[2, 2\]"):
        PART.hidden(tokens(SHAPE, 1, 5), Row([Cache(5), Cache(5)], [2, 2]))
