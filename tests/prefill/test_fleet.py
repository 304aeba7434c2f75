"""Which slots make an instance, and what it can hold."""

from collections import Counter
from itertools import accumulate, chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.errors import DoesNotFitError
from geotrain.prefill.fleet import Kind, Slot, fleet, whole_model_bytes
from geotrain.workload import Model
from tests.prefill.parts import MODEL, held_bytes, served, slot

CHUNK = 16
WEIGHTS = 2 * MODEL.parameters
"""Bytes."""

SLOTS = st.lists(
    st.builds(
        slot,
        dc=st.sampled_from("ab"),
        gpus=st.integers(1, 2),
        free_bytes=st.integers(0, 40).map(lambda part: part / 10 * WEIGHTS),
        idle_s=st.integers(0, 9).map(float),
        dedicated=st.booleans(),
    ),
    min_size=1,
    max_size=9,
)
MODELS = st.lists(
    st.builds(
        Model,
        name=st.sampled_from(["x", "y", "z"]),
        layers=st.integers(1, 6),
        hidden=st.just(64),
        heads=st.just(4),
        kv_heads=st.sampled_from([1, 4]),
        vocab=st.sampled_from([10, 1000]),
        tied_embeddings=st.booleans(),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda model: model.name,
)


def assert_holds(slots: list[Slot], models: list[Model], degree: int | None) -> None:
    kinds = fleet(slots, {model.name: served(model) for model in models}, chunk_tokens=CHUNK, degree=degree)
    everywhere = {(each.dc, each.dedicated) for each in slots}
    taken = held_bytes(list(chain(*kinds.values())), CHUNK)
    for model in models:
        alone = [kind for kind in kinds[model.name] if not kind.together]
        users = Counter(int(place) for kind in alone for place in kind.slots.ravel())
        assert set(users.values()) == {1}
        assert {(slots[place].dc, slots[place].dedicated) for place in users} == everywhere
        for kind in alone:
            assert kind.served.shape is model and len(kind) == len(kind.slots) == len(kind.layers)
            assert (kind.layers.sum(axis=1) == model.layers).all() and kind.layers.min() >= 1
            assert degree is None or kind.slots.shape[1] >= min(degree, model.layers)
            for group, layers, rooms in zip(kind.slots.tolist(), kind.layers, kind.room.tolist(), strict=True):
                members = [slots[place] for place in group]
                assert len({(each.dc, each.dedicated) for each in members}) == 1
                assert (members[0].dedicated, members[0].gpu) == (kind.like.dedicated, kind.like.gpu)
                assert all(room >= 2 * CHUNK * mine for room, mine in zip(rooms, layers.tolist(), strict=True))
                # Who idles more has no fewer layers.
                idle = [each.idle_s for each in members]
                shares = list(zip(idle, layers.tolist(), strict=True))
                assert all(mine <= other for i, mine in shares for j, other in shares if i < j)
                for place, room in zip(group, rooms, strict=True):
                    taken[place] += room * 2 * model.kv_heads * model.head_dim * 2
        for pair in (kind for kind in kinds[model.name] if kind.together):
            assert_together(slots, alone, pair)
    for place, size in taken.items():
        assert size <= slots[place].free_bytes * slots[place].gpus * (1 + 1e-12)


def assert_together(slots: list[Slot], alone: list[Kind], pair: Kind) -> None:
    """Every slot works on layers that it holds anyway, with the memory it has anyway."""
    holds: dict[int, tuple[range, int]] = {}
    for kind in alone:
        for group, layers, rooms in zip(kind.slots.tolist(), kind.layers.tolist(), kind.room.tolist(), strict=True):
            for place, last, mine, room in zip(group, accumulate(layers), layers, rooms, strict=True):
                holds[place] = range(last - mine, last), room
    for group, layers, rooms in zip(pair.slots.tolist(), pair.layers.tolist(), pair.room.tolist(), strict=True):
        assert len(set(group)) == len(group) and len({slots[place].dc for place in group}) == 1
        assert sum(layers) == pair.served.shape.layers
        for place, last, mine, room in zip(group, accumulate(layers), layers, rooms, strict=True):
            here, most = holds[place]
            assert mine >= 1 and here.start <= last - mine < last <= here.stop and room == most


@given(slots=SLOTS, models=MODELS, degree=st.one_of(st.none(), st.integers(1, 4)))
@settings(max_examples=100)
def test_every_instance_holds_its_model_or_it_is_said_which_does_not_fit(slots, models, degree) -> None:
    try:
        assert_holds(slots, models, degree)
    except DoesNotFitError as error:
        assert any(model.name in str(error) for model in models)
        assert any(repr(each.dc) in str(error) for each in slots)


@given(slots=SLOTS, model=MODELS.map(lambda models: models[0]))
@settings(max_examples=50)
def test_as_few_slots_as_memory_allows(slots: list[Slot], model: Model) -> None:
    here = [each for each in slots if (each.dc, each.dedicated) == (slots[0].dc, slots[0].dedicated)]

    def instances(degree: int | None) -> list[list[list[int]]] | None:
        try:
            kinds = fleet(here, {"m": served(model)}, chunk_tokens=CHUNK, degree=degree)["m"]
        except DoesNotFitError:
            return None
        return [kind.slots.tolist() for kind in kinds]

    tried = [instances(degree) for degree in range(1, min(len(here), model.layers) + 1)]
    assert instances(None) == next((found for found in tried if found), None)


def test_slots_that_idle_alike_stand_together_and_share_by_idle_time() -> None:
    slots = [slot(idle_s=idle_s, row=row) for row, idle_s in enumerate([1.0, 9.0, 9.0, 1.0])]
    kind, pairs = fleet(slots, {"m": served()}, chunk_tokens=CHUNK, degree=2)["m"]
    assert kind.slots.tolist() == [[0, 3], [1, 2]]
    assert kind.layers.tolist() == [[2, 2], [2, 2]]
    # Both hold the first two layers on their first slots: each takes one of them.
    assert pairs.together and pairs.slots.tolist() == [[0, 1, 3, 2]] and pairs.layers.tolist() == [[1, 1, 1, 1]]
    (kind,) = fleet(slots[:2], {"m": served()}, chunk_tokens=CHUNK, degree=2)["m"]
    assert (kind.slots.tolist(), kind.layers.tolist()) == ([[0, 1]], [[1, 3]])


def test_more_slots_than_layers_leaves_some_out() -> None:
    """Two layers, too big for one slot, on three."""
    model = Model(name="short", layers=2, hidden=64, heads=4, vocab=10)
    slots = [slot(free_bytes=1.8 * model.parameters, idle_s=float(row), row=row) for row in range(3)]
    (kind,) = fleet(slots, {"short": served(model)}, chunk_tokens=1, degree=None)["short"]
    assert kind.slots.tolist() == [[1, 2]]
    assert kind.layers.tolist() == [[1, 1]]


def test_one_data_center_of_two_slots_and_one_of_three() -> None:
    """A slot too many joins an instance: none is left idle."""
    slots = [slot(dc="a")] * 2 + [slot(dc="b")] * 3
    kinds = fleet(slots, {"m": served()}, chunk_tokens=CHUNK, degree=2)["m"]
    assert [kind.slots.tolist() for kind in kinds] == [[[0, 1]], [[2, 3, 4]]]


def test_what_does_not_fit_is_said_in_a_sentence() -> None:
    slots = [slot(free_bytes=WEIGHTS / 10)] * 2
    with pytest.raises(DoesNotFitError) as raised:
        fleet(slots, {"tiny": served()}, chunk_tokens=CHUNK, degree=None)
    assert str(raised.value) == (
        "tiny needs 409 KiB for its weights and does not fit beside training in 'a', "
        "where a GPU has 40.9 KiB left, not even over 2 slots"
    )
    with pytest.raises(DoesNotFitError, match="degree is 3 and must be at most 2 for tiny in 'a'"):
        fleet(slots, {"tiny": served()}, chunk_tokens=CHUNK, degree=3)
    with pytest.raises(DoesNotFitError, match="over 1 slot"):
        fleet(slots, {"tiny": served()}, chunk_tokens=CHUNK, degree=1)


def test_hidden_states_and_keys_travel_at_the_fabric_s_rate() -> None:
    slots = [slot(fabric_rate=1e6, fabric_latency_s=0.01)] * 2
    (kind,) = fleet(slots, {"m": served()}, chunk_tokens=CHUNK, degree=2)["m"]
    assert kind.hop_s(100) == pytest.approx(0.01 + 100 * 64 * 2 / 1e6)
    kv_bytes = 2 * 4 * 64 * 2
    assert kind.served.kv_bytes == kv_bytes
    # The last layer is what is left when the work is slow, all that could not be sent meanwhile when it is quick.
    assert kind.hand_over_s(100, work_s=9.0) == pytest.approx(0.01 + 100 * kv_bytes / 1e6 / 4)
    assert kind.hand_over_s(100, work_s=0.01) == pytest.approx(0.01 + 100 * kv_bytes / 1e6 - 0.01)


@given(model=MODELS.map(lambda models: models[0]), gpus=st.integers(1, 4), sequence=st.sampled_from([None, 8, 500]))
@settings(max_examples=50)
def test_a_slot_with_room_for_the_whole_model_is_an_instance_of_its_own(model: Model, gpus: int, sequence) -> None:
    model = model.model_copy(update={"sequence": sequence})
    needed = whole_model_bytes(model, chunk_tokens=CHUNK)
    there = slot(gpus=gpus, free_bytes=needed / gpus * (1 - 1e-9))
    (kind,) = fleet([there], {"m": served(model)}, chunk_tokens=CHUNK, degree=None)["m"]
    assert kind.layers.tolist() == [[model.layers]]
    assert kind.room.min() >= model.layers * max(2 * CHUNK, sequence or 0)
