"""Who prefills a model beside a plan's training: a slot for every process that trains, and who holds which layers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from geotrain.errors import InputError
from geotrain.layout import Layout
from geotrain.plan import Plan
from geotrain.prefill.fleet import Kind, Served, Slot, fleet
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.settings import Settings
from geotrain.simulation.prefill.scene import Scene
from geotrain.workload import Model


@dataclass(frozen=True, kw_only=True)
class Site:
    """Slots by their numbers in the controller's eyes."""

    scene: Scene
    names: tuple[str, ...]
    """Of the process that trains on the slot, or of the GPU that is only for prefill."""
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
        for kind in self.kinds({gpu: PrefillTime() for gpu in self.gpus})[self.model.name]:
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


def site(plan: Plan, model: Model, settings: Settings, *, dc: str | None) -> Site:
    """Every process of the plan's training, or those of one data center, and the GPUs there that are only for prefill.

    The GPUs of a slot that share a stage are idle at the same time; each prefills by itself.
    """
    scene, layout = Scene(plan=plan, models=(model,), settings=settings), Layout(plan)
    if dc is not None and dc not in layout.dcs:
        raise InputError(f"--dc: {dc!r} has no part in this plan, only {', '.join(layout.dcs)} have")
    stages, width = len(plan.stages), plan.pipelines_per_cell
    names, slots = [], []
    for seat in layout.seats:
        if dc in (None, seat.dc):
            names.append(seat.name)
            slots.append(replace(scene.slots[seat.pipeline % width * stages + seat.stage], gpus=1))
    for slot in scene.slots[scene.num_training_slots :]:
        if dc in (None, slot.dc):
            mine = sum(name.startswith(f"{slot.dc}-prefill-") for name in names)
            names += [f"{slot.dc}-prefill-{mine + part}" for part in range(slot.gpus)]
            slots += [replace(slot, gpus=1)] * slot.gpus
    return Site(scene=scene, names=tuple(names), slots=tuple(slots), model=model)
