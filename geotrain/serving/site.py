"""Who prefills a model beside a plan's training: a slot for every process that trains, and who holds which layers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.prefill.fleet import Kind, Served, Slot, fleet
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.settings import Settings
from geotrain.seating import Seating
from geotrain.simulation.prefill.scene import Scene
from geotrain.workload import Model


@dataclass(frozen=True, kw_only=True)
class Site:
    """Slots by their numbers in the controller's eyes."""

    scene: Scene
    names: tuple[str, ...]
    """Of the process that trains on the slot, or of the GPU that is only for prefill."""
    local_ranks: tuple[int, ...]
    """Of the slot's GPU on its machine; those that are only for prefill come behind those that train."""
    slots: tuple[Slot, ...]
    model: Model

    def kinds(self, times: Mapping[str, PrefillTime]) -> dict[str, list[Kind]]:
        """Instances, if prefill takes so long on each GPU; who is in which does not depend on that."""
        served = {self.model.name: Served(shape=self.model, times=times)}
        settings = self.scene.settings
        return fleet(self.slots, served, chunk_tokens=settings.chunk_tokens, degree=settings.degree)

    def layers(self) -> dict[int, tuple[int, int]]:
        """First layer, and the one behind the last, of every slot that has some."""
        found: dict[int, tuple[int, int]] = {}
        kinds = self.kinds({gpu: PrefillTime() for gpu in self.gpus})[self.model.name]
        for kind in (kind for kind in kinds if not kind.together):
            for slots, layers in zip(kind.slots.tolist(), kind.layers.tolist(), strict=True):
                first = 0
                for slot, mine in zip(slots, layers, strict=True):
                    found[slot] = first, first + mine
                    first += mine
        return found

    @property
    def gpus(self) -> set[str]:
        """Kinds of them."""
        return {slot.gpu for slot in self.slots}


def site(plan: Plan, model: Model, settings: Settings, *, dc: str | None, node: int | None = None) -> Site:
    """Every process of the plan's training, or those of one data center, and the GPUs there that are only for prefill.

    Or those that train on one node of a data center, and no others. The GPUs of a slot that share a stage are idle at
    the same time; each prefills by itself.
    """
    scene, seating = Scene(plan=plan, models=(model,), settings=settings), Seating(plan)
    if dc is not None and dc not in seating.dcs:
        raise InputError(f"--dc: {dc!r} has no part in this plan, only {', '.join(seating.dcs)} have")
    if node is not None:
        _check_node(seating, dc, node)
    stages, width = len(plan.stages), plan.pipelines_per_cell
    found: list[tuple[str, int, Slot]] = []
    for seat in seating.seats:
        if dc in (None, seat.dc) and node in (None, seat.node):
            slot = scene.slots[seat.pipeline % width * stages + seat.stage]
            found.append((seat.name, seat.local_rank, replace(slot, gpus=1)))
    own = scene.slots[scene.num_training_slots :] if node is None else []
    for datacenter in plan.cluster.datacenters:
        if dc in (None, datacenter.name):
            gpus = [replace(slot, gpus=1) for slot in own if slot.dc == datacenter.name for _ in range(slot.gpus)]
            for number, slot in enumerate(gpus):
                found.append((f"{datacenter.name}-prefill-{number}", datacenter.gpus_per_node + number, slot))
    names, local_ranks, slots = zip(*found, strict=True)
    return Site(scene=scene, names=names, local_ranks=local_ranks, slots=slots, model=model)


def _check_node(seating: Seating, dc: str | None, node: int) -> None:
    if dc is None:
        raise InputError("--node needs --dc: nodes are counted within a data center")
    nodes = sorted({seat.node for seat in seating.seats if seat.dc == dc})
    if node not in nodes:
        raise InputError(f"--node is {node}, and the plan uses nodes {nodes[0]} to {nodes[-1]} of {dc}")
