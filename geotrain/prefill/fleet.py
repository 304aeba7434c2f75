"""Who can prefill: instances, each some slots of one data center that together hold a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from geotrain.errors import DoesNotFitError
from geotrain.prefill.predictor import PrefillTime
from geotrain.timeline import Ints
from geotrain.units import format_bytes, plural
from geotrain.workload import Model

_ELEMENT_BYTES = 2
_LEAST_PROMPTS = 2
"""An instance must be able to hold this many chunks of keys and values, or it could never work without waiting."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model on offer."""

    shape: Model
    times: Mapping[str, PrefillTime]
    """By GPU, on one slot with all layers."""

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token, all layers."""
        return 2 * self.shape.layers * self.shape.kv_heads * self.shape.head_dim * _ELEMENT_BYTES

    def workspace_bytes(self, tokens: int) -> int:
        """What a layer needs beside weights, keys and values while it works on that many tokens."""
        return tokens * (6 * self.shape.hidden + 3 * self.shape.ffn) * _ELEMENT_BYTES


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Where shards of models can live."""

    dc: str
    gpu: str
    """Its kind: slots with the same compute equally fast."""
    gpus: int
    """That share the slot's work and memory evenly."""
    free_bytes: float
    """On each GPU, at any time."""
    idle_s: float
    """Per training step."""
    row: int
    """Which of the forecast's slots it idles like."""
    dedicated: bool = False
    """Does nothing but prefill."""
    fabric_rate: float = math.inf
    """Bytes per second to other nodes of the data center."""
    fabric_latency_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Instances that work at the same pace: one model, one type of GPU, one fabric, one number of slots.

    Two of them can also prefill a prompt together, as an instance of twice the slots: each slot then takes some of the
    layers it holds. That is quicker for a prompt of several chunks, and slots wait for each other.
    """

    served: Served
    time: PrefillTime
    like: Slot
    """One of its slots."""
    slots: Ints
    """[instance, q]"""
    layers: Ints
    """[instance, q]: layers that the slot works on; they add up to all of the model."""
    room: Ints
    """[instance, q]: keys and values that the slot can hold, counted in layers of one token."""
    together: bool = False
    """Whether it is two instances at a time, with the weights and the memory that these have anyway."""

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def degree(self) -> int:
        """Slots of an instance."""
        return int(self.slots.shape[1])

    def hop_s(self, tokens: int) -> float:
        """For the hidden states of that many tokens to get from one slot to the next."""
        return self.like.fabric_latency_s + tokens * self.served.shape.hidden * _ELEMENT_BYTES / self.like.fabric_rate

    def hand_over_s(self, tokens: int, work_s: float) -> float:
        """From the end of a prefill to its keys and values at the decoder.

        They are sent layer by layer as they are made; what is left at the end is the last layer, or what the fabric
        could not carry in time.
        """
        sent_s = tokens * self.served.kv_bytes / self.like.fabric_rate
        return self.like.fabric_latency_s + max(sent_s / self.served.shape.layers, sent_s - work_s)


def fleet(
    slots: Sequence[Slot], models: Mapping[str, Served], *, chunk_tokens: int, degree: int | None
) -> dict[str, list[Kind]]:
    """Instances of every model; every slot holds a shard of each. DoesNotFitError if one cannot be held."""
    found: dict[str, list[Kind]] = {}
    for name, served in models.items():
        alone = _kinds(slots, name, served, len(models), chunk_tokens=chunk_tokens, degree=degree)
        found[name] = alone + [pairs for kind in alone if (pairs := _paired(slots, kind)) is not None]
    return found


def _kinds(
    slots: Sequence[Slot], name: str, served: Served, sharing: int, *, chunk_tokens: int, degree: int | None
) -> list[Kind]:
    kinds: dict[tuple[object, ...], list[tuple[list[int], list[int], list[int]]]] = {}
    for dc, dedicated in dict.fromkeys((slot.dc, slot.dedicated) for slot in slots):
        here = [index for index, slot in enumerate(slots) if (slot.dc, slot.dedicated) == (dc, dedicated)]
        for group, layers, room in _grouped(slots, here, name, served, sharing, chunk_tokens, degree):
            like = slots[group[0]]
            alike = like.gpu, dedicated, len(group), like.fabric_rate, like.fabric_latency_s
            kinds.setdefault(alike, []).append((group, layers, room))
    return [
        Kind(
            served=served,
            time=served.times[slots[members[0][0][0]].gpu],
            like=slots[members[0][0][0]],
            slots=np.array([group for group, _, _ in members]),
            layers=np.array([layers for _, layers, _ in members]),
            room=np.array([room for _, _, room in members]),
        )
        for members in kinds.values()
    ]


def _paired(slots: Sequence[Slot], kind: Kind) -> Kind | None:
    """Each instance with the next of its data center that is cut alike, around the circle; None if there are none."""
    alike: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for instance, (group, layers) in enumerate(zip(kind.slots.tolist(), kind.layers.tolist(), strict=True)):
        if min(layers) > 1:
            alike.setdefault((slots[group[0]].dc, tuple(layers)), []).append(instance)
    pairs = [
        (members[i], members[(i + 1) % len(members)])
        for members in alike.values()
        for i in range(len(members) if len(members) > 2 else len(members) - 1)
    ]
    if not pairs:
        return None
    # Layer after layer: a shard's first layers on one of the two slots that hold it, the others on the other one.
    both = kind.slots[np.array(pairs)].transpose(0, 2, 1)
    shares = [
        [_shares(mine, [slots[slot].idle_s for slot in two]) for mine, two in zip(layers, holders, strict=True)]
        for layers, holders in zip(kind.layers[[first for first, _ in pairs]].tolist(), both.tolist(), strict=True)
    ]
    return replace(
        kind,
        slots=both.reshape(len(pairs), -1),
        layers=np.array(shares).reshape(len(pairs), -1),
        room=kind.room[np.array(pairs)].transpose(0, 2, 1).reshape(len(pairs), -1),
        together=True,
    )


def _grouped(
    slots: Sequence[Slot],
    here: list[int],
    name: str,
    served: Served,
    sharing: int,
    chunk_tokens: int,
    degree: int | None,
) -> list[tuple[list[int], list[int], list[int]]]:
    """Slots of one data center by instance, with layers and room; as few slots each as memory allows."""
    # Slots that idle alike stand together: an instance is as quick as its busiest slot.
    order = sorted(here, key=lambda index: (slots[index].idle_s, index))
    most = min(len(order), served.shape.layers)
    if degree is not None and degree > most:
        raise DoesNotFitError(
            f"degree is {degree} and must be at most {most} for {name} in {slots[here[0]].dc!r}, "
            "its slots there or the model's layers"
        )
    for wanted in [degree] if degree is not None else range(1, most + 1):
        # Who would be one too many for the layers is left out, the busiest first.
        groups = [group[-served.shape.layers :].tolist() for group in np.array_split(order, len(order) // wanted)]
        layers = [_shares(served.shape.layers, [slots[index].idle_s for index in group]) for group in groups]
        rooms = [
            _room([slots[index] for index in group], each, served, sharing, chunk_tokens)
            for group, each in zip(groups, layers, strict=True)
        ]
        least = _LEAST_PROMPTS * chunk_tokens
        if all(
            has >= least * mine for pair in zip(rooms, layers, strict=True) for has, mine in zip(*pair, strict=True)
        ):
            return list(zip(groups, layers, rooms, strict=True))
    tightest = min((slots[index] for index in here), key=lambda slot: slot.free_bytes)
    weights = served.shape.parameters * _ELEMENT_BYTES
    raise DoesNotFitError(
        f"{name} needs {format_bytes(weights)} for its weights and does not fit beside training in {tightest.dc!r}, "
        f"where a GPU has {format_bytes(max(0.0, tightest.free_bytes))} left, "
        + (f"over {plural(degree, 'slot')}" if degree is not None else f"not even over {plural(most, 'slot')}")
    )


def _shares(layers: int, idle_s: Sequence[float]) -> list[int]:
    """Whole layers in proportion to idle time, at least one each."""
    weights = np.maximum(np.array(idle_s, dtype=np.float64), 1e-9)
    exact = weights / weights.sum() * (layers - len(weights))
    shares = np.floor(exact).astype(np.int64)
    for index in np.argsort(shares - exact, kind="stable")[: layers - len(weights) - int(shares.sum())]:
        shares[index] += 1
    return [int(share) + 1 for share in shares]


def whole_model_bytes(model: Model, *, chunk_tokens: int) -> float:
    """Return what all GPUs of a slot need together to be an instance of the model on their own.

    Weights, workspace, and keys and values of the longest prompt, or of as many chunks as an instance must hold.
    """
    served = Served(shape=model, times={})
    tokens = max(_LEAST_PROMPTS * chunk_tokens, model.sequence or 0) + 1  # one more, as rooms are rounded down
    return _taken_bytes(served, model.layers, _num_ends(model, 0, 1), chunk_tokens) + tokens * served.kv_bytes


def _num_ends(shape: Model, q: int, num_slots: int) -> int:
    """Embedding matrices on that slot of an instance."""
    return (q == 0) + (q == num_slots - 1) if not shape.tied_embeddings or num_slots > 1 else 1


def _taken_bytes(served: Served, layers: int, ends: int, chunk_tokens: int) -> int:
    """Weights and workspace of a slot."""
    weights = layers * served.shape.layer_parameters + ends * served.shape.embedding_parameters
    return weights * _ELEMENT_BYTES + served.workspace_bytes(chunk_tokens)


def _room(group: Sequence[Slot], layers: Sequence[int], served: Served, sharing: int, chunk_tokens: int) -> list[int]:
    """Keys and values that fit on each slot of the group, beside weights and workspace; in layers of a token."""
    shape = served.shape
    rooms: list[int] = []
    for q, (slot, mine) in enumerate(zip(group, layers, strict=True)):
        ends = _num_ends(shape, q, len(group))
        taken = _taken_bytes(served, mine, ends, chunk_tokens)
        free = slot.free_bytes * slot.gpus / sharing
        rooms.append(int(max(0.0, free - taken) / (served.kv_bytes / shape.layers)))
    return rooms
