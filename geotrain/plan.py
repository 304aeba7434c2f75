"""WHAT WE DECIDED: which stage of the model runs where, in which order, over which connections."""

import os
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from geotrain.cluster import Cluster, Datacenter, Gpu
from geotrain.cluster.cluster import unknown_datacenter
from geotrain.complaints import complaint
from geotrain.errors import DoesNotFitError, InputError
from geotrain.files import Document, Whole
from geotrain.units import Bytes, format_bytes, plural
from geotrain.workload import Job

ScheduleName = Literal["gpipe", "1f1b", "interleaved", "varuna", "zero-bubble", "zero-bubble-2p", "atlas", "auto"]
Sharing = Literal["spatial", "temporal"]


def _beside(document: type[Document]) -> BeforeValidator:
    """A path is read relative to the plan's own file."""

    def load(value: object, info: ValidationInfo) -> object:
        if not isinstance(value, str):
            return value
        directory: Path = (info.context or {}).get("directory", Path())
        path = directory / value
        if not os.path.exists(path):
            raise ValueError(f"must be a file beside the plan: {path} does not exist")
        return document.load(path)

    return BeforeValidator(load, json_schema_input_type=str | document)


class Stage(Document):
    """A run of layers in one data center."""

    dc: str
    layers: Whole = Field(ge=0)


class WanUse(Document):
    """How the plan uses the WAN."""

    connections: Literal["auto"] | Annotated[Whole, Field(ge=1)] = "auto"
    """TCP connections per pair; auto opens enough to reach the pair cap."""
    sharing: Sharing = "temporal"
    """spatial: each pipeline has its own pair; temporal: a cell's pairs serve one transfer at a time, together."""


class Replica(Document):
    """The same pipelines once more, in another data center."""

    dc: str
    cells: Whole = Field(ge=1)


class MadeBy(Document):
    """Where a plan comes from. No time of day: the same inputs make the same file."""

    command: str
    versions: dict[str, str]
    inputs: dict[str, str]
    """SHA-256 of each file that was read."""


class Plan(Document):
    """A cluster, a job, and every choice between them."""

    cluster: Annotated[Cluster, _beside(Cluster)]
    """Path of the cluster file, beside this one, or its content."""
    job: Annotated[Job, _beside(Job)]
    """Path of the job file, beside this one, or its content."""
    tensor_parallel: Whole = Field(1, ge=1)
    """GPUs of one node that share a stage; together they are a slot."""
    sequence_parallel: bool = True
    """With tensor parallelism, activations outside the split matrices are spread over its GPUs too."""
    stages: list[Stage] = Field(min_length=1)
    pipelines_per_cell: Whole = Field(1, ge=1)
    """K: pipelines that pool their WAN bandwidth."""
    cells: Whole = Field(1, ge=1)
    replicas: list[Replica] = Field(default_factory=list)
    """Data parallel across data centers: the stages, all in one data center, are there again in these. Gradients are
    reduced inside each, then over the WAN."""
    schedule: ScheduleName = "atlas"
    interleave: Whole = Field(1, ge=1)
    """Chunks of layers per stage, for the interleaved schedule."""
    max_in_flight: Literal["auto"] | Annotated[Whole, Field(ge=1)] = "auto"
    """Microbatches a stage may hold; auto is what memory allows."""
    prefill_room_bytes: Bytes = Field(0.0, alias="prefill_room")
    """Memory of each GPU that training leaves to prefill; `geotrain plan --leave-room-for` chooses it."""
    wan: WanUse = WanUse.model_construct()
    made_by: MadeBy | None = None
    """Written by `geotrain plan`."""

    @classmethod
    def parse(cls, content: object, *, source: Path) -> Self:
        """As for any document; also a plan that does not fit says in which file it stands."""
        try:
            return super().parse(content, source=source)
        except DoesNotFitError as error:
            raise DoesNotFitError(f"{source}: {error}") from None

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        known = [dc.name for dc in self.cluster.datacenters]
        for index, stage in enumerate(self.stages):
            if stage.dc not in known:
                raise ValueError(f"stages[{index}].dc names {unknown_datacenter(stage.dc, known)}")
        self._check_layers()
        self._check_interleave()
        self._check_replicas(known)
        self._check_slots()
        self._check_batch()
        return self

    def _check_layers(self) -> None:
        layers = sum(stage.layers for stage in self.stages)
        model = self.job.model
        if layers != model.layers:
            raise ValueError(
                f"stages hold {plural(layers, 'layer')} in all and must hold the {model.layers} of the model "
                f"{model.name!r}"
            )
        profiled = self.job.profile.stage
        if isinstance(profiled, list) and len(profiled) != len(self.stages):
            raise ValueError(
                f"stages has {len(self.stages)} entries and must have {len(profiled)}, like profile.stage of the job"
            )

    def _check_interleave(self) -> None:
        if (self.interleave > 1) != (self.schedule == "interleaved"):
            raise ValueError(
                f"interleave is {self.interleave} and schedule is {self.schedule!r}: "
                "an interleaved schedule needs interleave 2 or more, any other needs 1"
            )
        for index, stage in enumerate(self.stages):
            if stage.layers % self.interleave:
                raise ValueError(
                    f"stages[{index}].layers is {stage.layers} and must be a multiple of interleave, {self.interleave}"
                )

    def _check_replicas(self, known: list[str]) -> None:
        home = self.stages[0].dc
        if self.replicas and any(stage.dc != home for stage in self.stages):
            raise ValueError(f"replicas are copies of stages in one data center, but stages are not all in {home!r}")
        seen = {home}
        for index, replica in enumerate(self.replicas):
            where = f"replicas[{index}].dc"
            if replica.dc not in known:
                raise ValueError(f"{where} names {unknown_datacenter(replica.dc, known)}")
            if replica.dc in seen:
                raise ValueError(f"{where} is {replica.dc!r} and must differ from the data centers before it")
            seen.add(replica.dc)
            gpus = [self.cluster.datacenter(name).gpu for name in (home, replica.dc)]
            if gpus[0] != gpus[1]:
                raise ValueError(
                    f"{where} is {replica.dc!r} with {gpus[1].name} GPUs and must have the {gpus[0].name} of {home!r}: "
                    "copies go at the same pace"
                )

    def _check_slots(self) -> None:
        heads = self.job.model.heads
        if heads % self.tensor_parallel:
            raise ValueError(f"tensor_parallel is {self.tensor_parallel} and must divide the model's {heads} heads")
        home = Counter(stage.dc for stage in self.stages)
        for name, stages, cells in [
            *((name, stages, self.cells) for name, stages in home.items()),
            *((replica.dc, len(self.stages), replica.cells) for replica in self.replicas),
        ]:
            dc = self.cluster.datacenter(name)
            if self.tensor_parallel > dc.gpus_per_node:
                raise ValueError(
                    f"tensor_parallel is {self.tensor_parallel} and must be at most {dc.gpus_per_node}, "
                    f"the GPUs of a node of {name!r}"
                )
            needs, has = stages * self.pipelines_per_cell * cells, dc.num_slots(self.tensor_parallel)
            if needs > has:
                raise DoesNotFitError(
                    f"stages need {plural(needs, 'slot')} in {name!r} ({plural(stages, 'stage')} x "
                    f"{self.pipelines_per_cell} pipelines_per_cell x {plural(cells, 'cell')}), which has "
                    f"{plural(has, 'slot')} of {plural(self.tensor_parallel, 'GPU')}"
                )

    def _check_batch(self) -> None:
        job, per_round = self.job, self.num_pipelines * self.job.microbatch
        if job.global_batch is not None and job.global_batch % per_round:
            raise DoesNotFitError(
                f"the job's global_batch is {job.global_batch} and must be a multiple of {per_round}: "
                f"{plural(self.num_pipelines, 'pipeline')} x microbatch {job.microbatch}"
            )

    def change(self, **choices: object) -> "Plan":
        """The plan with other choices, checked again; InputError if they do not go together."""
        try:
            return Plan.model_validate(dict(self) | choices)
        except ValidationError as error:
            raise InputError(complaint(error, Plan)) from error

    @property
    def num_pipelines(self) -> int:
        """Copies of the model: the data-parallel degree."""
        return self.pipelines_per_cell * (self.cells + sum(replica.cells for replica in self.replicas))

    @property
    def groups(self) -> list[tuple[Datacenter, int]]:
        """With replicas: each data center and the pipelines in it."""
        home = (self.stages[0].dc, self.cells)
        every = [home, *((replica.dc, replica.cells) for replica in self.replicas)]
        return [(self.cluster.datacenter(name), self.pipelines_per_cell * cells) for name, cells in every]

    @property
    def num_gpus(self) -> int:
        """GPUs in use."""
        return len(self.stages) * self.num_pipelines * self.tensor_parallel

    @property
    def num_microbatches(self) -> int:
        """Microbatches per pipeline and step."""
        if self.job.microbatches is not None:
            return self.job.microbatches
        assert self.job.global_batch is not None
        return self.job.global_batch // (self.num_pipelines * self.job.microbatch)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer update sees."""
        return self.num_pipelines * self.num_microbatches * self.job.microbatch * self.job.sequence

    def datacenter_of(self, stage: int) -> Datacenter:
        """Where that stage runs."""
        return self.cluster.datacenter(self.stages[stage].dc)

    def training_bytes(self, stage: int) -> float:
        """Memory of one GPU that training may use: in all data centers that hold the stage."""
        names = [self.stages[stage].dc, *(replica.dc for replica in self.replicas)]
        return min(self.cluster.datacenter(name).usable_bytes for name in names) - self.prefill_room_bytes

    def memory_there(self, stage: int) -> str:
        """The GPU of that stage and its memory, in words: `the h100 in 'east' has 80 GiB, of which ...`."""
        gpu = self.datacenter_of(stage).gpu
        return f"the {gpu.name} in {self.stages[stage].dc!r} has {memory_words(gpu, self.training_bytes(stage))}"

    def crosses_wan(self, source: int, target: int) -> bool:
        """Whether the two stages are in different data centers."""
        return self.stages[source].dc != self.stages[target].dc


def memory_words(gpu: Gpu, usable_bytes: float) -> str:
    """`80 GiB, of which 4.8 GiB are kept free`; without the second part where all can be used."""
    kept = gpu.memory_bytes - usable_bytes
    memory = format_bytes(gpu.memory_bytes)
    return f"{memory}, of which {format_bytes(kept)} are kept free" if kept > 0 else memory
