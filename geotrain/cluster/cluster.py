"""The cluster file: data centers and the WAN between them."""

import math
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from geotrain.cluster.catalog import GPUS, find_gpu
from geotrain.cluster.gpu import Gpu
from geotrain.errors import InputError
from geotrain.files import Document, Number, Whole
from geotrain.hints import hint
from geotrain.units import SIZE, PositiveBytes, PositiveRate, Seconds, SizeOrShare, format_bytes, parse, size_of

_RESERVE_BYTES = parse("2 GiB", SIZE)
_RESERVE_SHARE = 0.06
_MOST_RESERVED = 1 / 8


class Fabric(Document):
    """The network inside a data center, as one slot sees it."""

    rate: PositiveRate
    """What one slot can send, and receive, at the same time."""
    latency_s: Seconds = Field(0.0, alias="latency")
    """One way, between two nodes."""


class _ChangedGpu(Gpu):
    """A GPU of the catalog with some figures of its own; only its JSON schema is used."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        title="ChangedGpu", json_schema_extra=lambda schema: schema.update(required=["base"])
    )

    base: Literal[*GPUS]  # type: ignore[valid-type]
    """A name of `geotrain catalog`; the other fields replace its figures."""


def _gpu(value: object) -> object:
    """A catalog name, a catalog name with changes, or a whole GPU."""
    if isinstance(value, str):
        return find_gpu(value)
    if isinstance(value, dict) and "base" in value:
        base, changes = value["base"], {name: figure for name, figure in value.items() if name != "base"}
        try:
            return {**find_gpu(str(base)).dump(), **changes}
        except ValueError as error:
            raise ValueError(f"base is {base!r} and {error}") from None
    return value


GpuType = Annotated[Gpu, BeforeValidator(_gpu, json_schema_input_type=Literal[*GPUS] | _ChangedGpu | Gpu)]


class Datacenter(Document):
    """Nodes of one kind in one place."""

    name: str = Field(min_length=1)
    nodes: Whole = Field(ge=0)
    gpus_per_node: Whole = Field(1, ge=1)
    gpu: GpuType
    """A name of `geotrain catalog`, `{base: h100, memory: 94 GB}` to change one, or a GPU's own figures."""
    price_per_gpu_hour: Number = Field(0.0, ge=0)
    fabric: Fabric | None = None
    """Left out: unlimited inside this data center."""
    prefill_gpus: Whole = Field(0, ge=0)
    """GPUs of the same kind, beside the nodes, that do nothing but prefill: for requests that bubbles cannot take."""
    memory_reserve: SizeOrShare | None = None
    """Of each GPU's memory, what no plan may use, such as 4 GiB or 8%: for the CUDA context, communication buffers and
    fragmentation. Left out: 6%, at least 2 GiB, at most an eighth."""

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        if self.usable_bytes <= 0:
            raise ValueError(
                f"memory_reserve is {format_bytes(self.reserve_bytes)} and must be below the "
                f"{format_bytes(self.gpu.memory_bytes)} of a {self.gpu.name}"
            )
        return self

    @property
    def reserve_bytes(self) -> float:
        """Memory of one GPU that no plan may use."""
        memory = self.gpu.memory_bytes
        if self.memory_reserve is None:
            return min(max(_RESERVE_BYTES, _RESERVE_SHARE * memory), _MOST_RESERVED * memory)
        return size_of(self.memory_reserve, memory)

    @property
    def usable_bytes(self) -> float:
        """Memory of one GPU that plans may use."""
        return self.gpu.memory_bytes - self.reserve_bytes

    @property
    def num_gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node

    def num_slots(self, tensor_parallel: int) -> int:
        """Slots of that many GPUs each; a slot never spans two nodes."""
        return self.nodes * self.slots_per_node(tensor_parallel)

    def slots_per_node(self, tensor_parallel: int) -> int:
        """Slots of that many GPUs each on one node."""
        return self.gpus_per_node // tensor_parallel


class Link(Document):
    """What one direction between two data centers offers; a field left out is unlimited or free."""

    rtt_s: Seconds | None = Field(None, alias="rtt")
    """Round-trip time; an arrival is half of it behind the departure."""
    pair_cap: PositiveRate | None = None
    """The most that one node and its peer get, over any number of connections."""
    tcp_window_bytes: PositiveBytes | None = Field(None, alias="tcp_window")
    """What one TCP connection keeps in flight; window / rtt is its rate."""
    capacity: PositiveRate | None = None
    """The most that all pairs between the two data centers get together."""
    price_per_gb: Number | None = Field(None, ge=0)
    """Egress price of a gigabyte."""
    loss: Number | None = Field(None, ge=0, lt=1)
    """Share of packets that go missing, at random; the testbed drops them, the simulator does not know."""


class LinkOverride(Link):
    """A link that differs from the default, for both directions (`between`) or one (`from`, `to`)."""

    between: tuple[str, str] | None = None
    source: str | None = Field(None, alias="from")
    target: str | None = Field(None, alias="to")

    @model_validator(mode="after")
    def _names_one_link(self) -> Self:
        one_way = self.source is not None and self.target is not None
        half = (self.source is None) != (self.target is None)
        if half or one_way == (self.between is not None):
            raise ValueError("needs either `between: [a, b]` or both `from` and `to`")
        return self

    @property
    def directions(self) -> list[tuple[str, str]]:
        """The (source, target) names it speaks of."""
        if self.between is not None:
            a, b = self.between
            return [(a, b), (b, a)]
        assert self.source is not None and self.target is not None
        return [(self.source, self.target)]


class Wan(Document):
    """The network between data centers."""

    default: Link = Link.model_construct()
    links: list[LinkOverride] = Field(default_factory=list)

    def link(self, source: str, target: str) -> Link:
        """What it offers from `source` to `target`."""
        found = self._found.get((source, target))
        # A copy with another default or other links inherits what was found before.
        if found is None or found[0] is not self.default or found[1] is not self.links:
            found = self._found[source, target] = self.default, self.links, self._find(source, target)
        return found[2]

    @cached_property
    def _found(self) -> dict[tuple[str, str], tuple[Link, list[LinkOverride], Link]]:
        return {}

    def _find(self, source: str, target: str) -> Link:
        link = self.default
        # `between` first, then one-way entries, so that the narrower statement wins in any order of lines.
        for override in sorted(self.links, key=lambda link: link.between is None):
            if (source, target) in override.directions:
                given = override.model_fields_set & Link.model_fields.keys()
                link = link.model_copy(update={name: getattr(override, name) for name in given})
        return link


class Cluster(Document):
    """The machines there are."""

    name: str = "cluster"
    datacenters: list[Datacenter] = Field(min_length=1)
    wan: Wan = Wan.model_construct()

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        names = [dc.name for dc in self.datacenters]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"datacenters[{index}].name is {name!r} and must differ from the names before it")
        for index, override in enumerate(self.wan.links):
            source, target = override.directions[0]
            if source == target:
                raise ValueError(f"wan.links[{index}] joins {source!r} to itself and must join two data centers")
            for name in (source, target):
                if name not in names:
                    raise ValueError(f"wan.links[{index}] names {unknown_datacenter(name, names)}")
        return self

    def link(self, source: str, target: str) -> Link:
        """What the WAN offers from `source` to `target`."""
        return self.wan.link(source, target)

    def datacenter(self, name: str) -> Datacenter:
        """The data center of that name."""
        for dc in self.datacenters:
            if dc.name == name:
                return dc
        raise InputError(unknown_datacenter(name, [dc.name for dc in self.datacenters]))

    def gpu_kind(self, name: str) -> str:
        """The name of the data center's GPUs; with the first that has them, where others have that name and differ."""
        gpu = self.datacenter(name).gpu
        named = [dc for dc in self.datacenters if dc.gpu.name == gpu.name]
        first = next(dc.name for dc in named if dc.gpu == gpu)
        return gpu.name if all(dc.gpu == gpu for dc in named) else f"{gpu.name} of {first}"


def unknown_datacenter(name: str, known: list[str]) -> str:
    """The sentence part that names an unknown data center and the nearest known one."""
    return f"the unknown data center {name!r}: {hint(name, known)}"


def limit(value: float | None) -> float:
    """A rate limit that was left out is no limit."""
    return math.inf if value is None else value
