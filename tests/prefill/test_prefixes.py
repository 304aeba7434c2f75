"""Which instance still has which prefix."""

from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.prefill.prefixes import Prefixes
from geotrain.prefill.request import BLOCK_TOKENS
from tests.prefill.parts import PROMPTS

INSTANCES = 6
Change = tuple[str, int, tuple[int, ...], int]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["keep", "shrink"]),
        st.integers(0, INSTANCES - 1),
        PROMPTS,
        st.integers(-1, 8 * BLOCK_TOKENS),
    ),
    max_size=40,
)


class Slow:
    """What an instance has, block by block, the ones to forget first in front."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def keep(self, blocks: tuple[int, ...]) -> None:
        self.blocks = [block for block in self.blocks if block not in blocks] + list(reversed(blocks))

    def shrink(self, room_tokens: int) -> None:
        while self.blocks and len(self.blocks) * BLOCK_TOKENS > room_tokens:
            del self.blocks[0]

    def has(self, blocks: tuple[int, ...]) -> int:
        return next((n for n, block in enumerate(blocks) if block not in self.blocks), len(blocks))


@given(changes=CHANGES, asked=st.lists(PROMPTS, min_size=1, max_size=5))
@settings(max_examples=100)
def test_the_longest_are_found_and_nothing_that_is_gone(changes: list[Change], asked: list[tuple[int, ...]]) -> None:
    prefixes, slow = Prefixes(INSTANCES), [Slow() for _ in range(INSTANCES)]
    for change, instance, blocks, room_tokens in changes:
        if change == "keep":
            prefixes.keep(instance, blocks, room_tokens)
            slow[instance].keep(blocks)
        else:
            prefixes.shrink(instance, room_tokens)
        slow[instance].shrink(room_tokens)
        assert prefixes.tokens(instance) == len(slow[instance].blocks) * BLOCK_TOKENS <= max(0, room_tokens)
    for blocks in asked:
        there = {instance: each.has(blocks) * BLOCK_TOKENS for instance, each in enumerate(slow) if each.has(blocks)}
        found = prefixes.longest(blocks)
        assert len(found) == min(4, len(there))
        assert all(there[instance] == tokens for instance, tokens in found)
        assert [tokens for _, tokens in found] == sorted(there.values(), reverse=True)[:4]
    for instance in range(INSTANCES):
        prefixes.shrink(instance, 0)
    assert not prefixes._where and not any(prefixes._kept)


def test_what_does_not_fit_is_the_end_of_a_prompt_not_its_beginning() -> None:
    prefixes = Prefixes(1)
    prefixes.keep(0, (1, 2, 3, 4), 3 * BLOCK_TOKENS)
    assert prefixes.longest((1, 2, 3, 4)) == [(0, 3 * BLOCK_TOKENS)]
    prefixes.shrink(0, BLOCK_TOKENS)
    assert prefixes.longest((1, 2, 3, 4)) == [(0, BLOCK_TOKENS)]


def test_who_was_used_last_stays_longest() -> None:
    prefixes = Prefixes(1)
    for blocks in ((1, 2), (3, 4), (1, 5)):
        prefixes.keep(0, blocks, 9 * BLOCK_TOKENS)
    prefixes.shrink(0, 3 * BLOCK_TOKENS)
    assert prefixes.longest((3, 4)) == [(0, BLOCK_TOKENS)]
    prefixes.shrink(0, 2 * BLOCK_TOKENS)
    assert prefixes.longest((3,)) == []
    assert prefixes.longest((1, 5)) == [(0, 2 * BLOCK_TOKENS)]


def test_no_blocks_are_nowhere() -> None:
    prefixes = Prefixes(2)
    prefixes.keep(1, (7,), BLOCK_TOKENS)
    assert prefixes.longest(()) == [] == prefixes.longest((8, 7))
