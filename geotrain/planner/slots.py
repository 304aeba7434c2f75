"""The cluster as slots of one size, for a job with one size of microbatch: room, cost of stages, cost of hops."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import combinations, pairwise

from geotrain.cluster import Cluster, Link
from geotrain.cost import Share, StageCost, stage_cost, swapped_bytes, transfer_bytes
from geotrain.network import Ring, Row, connections_for, most_on_a_pair, pair_rate, ring_all_reduce_s, swap_between
from geotrain.planner.layout import Layout, Placement
from geotrain.planner.partition import Leg, Load, balanced, every_partition, partition, soonest_end_s
from geotrain.planner.placement import Measure
from geotrain.workload import Job, StageProfile

_FEW_PARTITIONS = 64


class Slots:
    """Data centers are numbered as in the cluster file. Everything is looked up once and remembered."""

    def __init__(self, cluster: Cluster, job: Job, tensor_parallel: int, prefill_room_bytes: float = 0.0) -> None:
        self._prefill_room_bytes = prefill_room_bytes
        self.cluster, self.job, self.tensor_parallel = cluster, job, tensor_parallel
        self.numbers = [dc.num_slots(tensor_parallel) * dc.gpu.computes(job.precision) for dc in cluster.datacenters]
        """Per data center; none where the GPU does not know the job's precision."""
        self._share = Share(job, tensor_parallel, sequence_parallel=True)
        self._costs: dict[tuple[int, int, bool, bool], StageCost] = {}
        self._loads: dict[tuple[int, int, bool, bool], Load] = {}
        self._legs: dict[tuple[int, int, int, int, bool, bool], Leg] = {}
        self._partitions: dict[tuple[Placement, int], list[tuple[int, ...]]] = {}
        self._transfers: dict[int, list[list[float]]] = {}

    @property
    def is_measured(self) -> bool:
        """Measured times hold for a stage as it was measured, whatever its layers."""
        entries = self.job.profile.stage
        return isinstance(entries, list) or entries.forward_s is not None

    @cached_property
    def _kinds(self) -> list[int]:
        """Per data center: the first one with the same GPU, as much of its memory to use, and the same fabric."""
        gpus = [(dc.gpu, dc.usable_bytes, dc.fabric) for dc in self.cluster.datacenters]
        return [gpus.index(gpu) for gpu in gpus]

    def num_microbatches(self, num_pipelines: int) -> int:
        """Per pipeline."""
        if self.job.microbatches is not None:
            return self.job.microbatches
        assert self.job.global_batch is not None
        return self.job.global_batch // (num_pipelines * self.job.microbatch)

    def divides(self, num_pipelines: int) -> bool:
        """Whether the batch can be dealt evenly to so many pipelines."""
        batch = self.job.global_batch
        return batch is None or batch % (num_pipelines * self.job.microbatch) == 0

    # Stages.

    def cost(self, dc: int, layers: int, *, is_first: bool, is_last: bool) -> StageCost:
        """Of a stage there."""
        key = self._kinds[dc], layers, is_first, is_last
        if key not in self._costs:
            gpu, entries = self.cluster.datacenters[dc].gpu, self.job.profile.stage
            measured: StageProfile = entries[0] if isinstance(entries, list) else entries
            self._costs[key] = stage_cost(self._share, gpu, layers, measured, is_first=is_first, is_last=is_last)
        return self._costs[key]

    def recompute_s(self, cost: StageCost) -> float:
        """Of a stage that is not the last, which goes straight from forward to backward."""
        return cost.recompute_s if self.job.recompute == "full" else 0.0

    def load(self, dc: int, held: int, *, is_first: bool, is_last: bool) -> Load:
        """What layers cost on a stage there that holds that many microbatches."""
        key = self._kinds[dc], held, is_first, is_last
        if key not in self._loads:
            self._loads[key] = self._load(dc, held, is_first=is_first, is_last=is_last)
        return self._loads[key]

    def _load(self, dc: int, held: int, *, is_first: bool, is_last: bool) -> Load:
        one, two = (self.cost(dc, layers, is_first=is_first, is_last=is_last) for layers in (1, 2))
        seconds = [c.forward_s + c.backward_s + (0.0 if is_last else self.recompute_s(c)) for c in (one, two)]
        sizes = [m.static_bytes + m.workspace_bytes + held * m.activation_bytes for m in (c.memory for c in (one, two))]
        memory = self.cluster.datacenters[dc].usable_bytes - self._prefill_room_bytes
        layer_s, layer_bytes = seconds[1] - seconds[0], sizes[1] - sizes[0]
        if layer_bytes > 0:
            most = 1 + math.floor((memory - sizes[0]) / layer_bytes)
        else:
            most = self.job.model.layers if sizes[0] <= memory else 0
        return Load(base_s=seconds[0] - layer_s, layer_s=layer_s, most_layers=most)

    def partitions(self, placement: Placement, num_pipelines: int) -> list[tuple[int, ...]]:
        """Layers per stage: every way if there are few, otherwise as even as memory allows, microbatch by microbatch or
        over the whole step: memory for a full pipeline, or for one microbatch."""
        alike: list[tuple[int, int]] = []
        for dc, stages in placement:
            kind = self._kinds[dc]
            before = alike.pop()[1] if alike and alike[-1][0] == kind else 0
            alike.append((kind, before + stages))
        key = tuple(alike), num_pipelines
        if key not in self._partitions:
            self._partitions[key] = self._partitioned(*key)
        return self._partitions[key]

    def _partitioned(self, placement: Placement, num_pipelines: int) -> list[tuple[int, ...]]:
        where = [dc for dc, stages in placement for _ in range(stages)]
        last = len(where) - 1
        if self.is_measured:
            each, more = divmod(self.job.model.layers, len(where))
            return [tuple(each + (stage < more) for stage in range(len(where)))]
        even: list[tuple[int, ...]] = []
        over_step: list[tuple[int, ...]] = []
        for in_flight in (self.num_microbatches(num_pipelines), 1):
            loads = [
                self.load(dc, min(in_flight, last + 1 - stage), is_first=stage == 0, is_last=stage == last)
                for stage, dc in enumerate(where)
            ]
            layers = partition(self.job.model.layers, loads)
            if layers is not None:
                even.append(layers)
                over_step += balanced(
                    self.job.model.layers, self._step(where, num_pipelines, in_flight, copies=num_pipelines)
                )
        found = even + over_step
        if self._are_few(last):
            found += every_partition(self.job.model.layers, loads)
        return list(dict.fromkeys(found))

    def _are_few(self, cuts: int) -> bool:
        return math.comb(self.job.model.layers - 1, cuts) <= _FEW_PARTITIONS

    def _step(self, where: list[int], num_pipelines: int, in_flight: int, *, copies: int) -> list[Leg]:
        """The stages of a pipeline in those data centers over a whole step, without the hops between them."""
        microbatches, last = self.num_microbatches(num_pipelines), len(where) - 1
        return [
            self._leg(
                dc, microbatches, copies, min(in_flight, last + 1 - stage), is_first=not stage, is_last=stage == last
            )
            for stage, dc in enumerate(where)
        ]

    def _leg(self, dc: int, microbatches: int, copies: int, held: int, *, is_first: bool, is_last: bool) -> Leg:
        key = self._kinds[dc], microbatches, copies, held, is_first, is_last
        if key not in self._legs:
            each = self.load(dc, held, is_first=is_first, is_last=is_last)
            costs = [self.cost(dc, layers, is_first=is_first, is_last=is_last) for layers in (1, 2)]

            def linear(seconds: Callable[[StageCost], float]) -> Load:
                one, two = map(seconds, costs)
                return Load(base_s=2 * one - two, layer_s=two - one, most_layers=each.most_layers)

            def urgent_s(cost: StageCost) -> float:
                return cost.forward_s + cost.input_grad_s + (0.0 if is_last else self.recompute_s(cost))

            def work_s(cost: StageCost) -> float:
                return microbatches * (urgent_s(cost) + cost.weight_grad_s) + self._finish_s(dc, cost, copies)

            self._legs[key] = Leg(
                entry_s=0.0,
                return_s=0.0,
                work=linear(work_s),
                urgent=linear(lambda cost: microbatches * urgent_s(cost)),
                first=linear(lambda cost: cost.forward_s),
                back=linear(lambda cost: cost.input_grad_s),
            )
        return self._legs[key]

    def _with_ring(self, leg: Leg, layout: Layout, *, is_first: bool, is_last: bool) -> Leg:
        """With what is left of the all-reduce across data centers, at least: weight gradients hide the rest."""
        homes = [(layout.placement[0][0], layout.cells), *layout.replicas]
        names = [dc for dc, _ in homes]
        ring = Ring(
            groups=[(self.cluster.datacenters[dc], cells * layout.pipelines_per_cell) for dc, cells in homes],
            links=[self.link(here, there) for here, there in zip(names, [*names[1:], names[0]], strict=True)],
            stages=len(layout.layers),
            tensor_parallel=self.tensor_parallel,
            connections="auto",
        )
        costs = [self.cost(names[0], layers, is_first=is_first, is_last=is_last) for layers in (1, 2)]
        one, two = (ring.across_s(cost.gradient_bytes) - cost.weight_grad_s for cost in costs)
        if not 0 <= one <= two:
            return leg
        more = replace(leg.work, base_s=leg.work.base_s + 2 * one - two, layer_s=leg.work.layer_s + two - one)
        return replace(leg, work=more)

    def _finish_s(self, dc: int, cost: StageCost, copies: int) -> float:
        """What follows the last backward of a stage there: all-reduce over its copies, and the optimizer."""
        return cost.optimizer_s + ring_all_reduce_s(copies, cost.gradient_bytes, self.cluster.datacenters[dc])

    def soonest_end_s(self, layout: Layout, within_s: float) -> float:
        """No step with stages and pipelines placed so is shorter, however layers are dealt to stages.

        `within_s` if that is less; infinite where every way to deal them is among `partitions`.
        """
        placement, num_pipelines, pooled = layout.placement, layout.num_pipelines, layout.pipelines_per_cell
        where = [dc for dc, stages in placement for _ in range(stages)]
        if self.is_measured or self._are_few(len(where) - 1):
            return math.inf
        legs = self._step(where, num_pipelines, 1, copies=1 if layout.replicas else num_pipelines)
        if layout.replicas:
            legs = [
                self._with_ring(leg, layout, is_first=not stage, is_last=stage == len(where) - 1)
                for stage, leg in enumerate(legs)
            ]
        stage, queue_s = 0, 0.0
        for (before, stages), (dc, _) in pairwise(placement):
            stage += stages
            sharing = self._sharing(before, stages, dc, num_pipelines)
            alone_s, there_s = self._hop(before, dc, sharing, pooled)
            alone_back_s, back_s = self._hop(dc, before, sharing, pooled)
            legs[stage] = replace(legs[stage], entry_s=there_s, return_s=back_s)
            queue_s = max(queue_s, (self.num_microbatches(num_pipelines) - 1) * max(alone_s, alone_back_s))
        first = self.cost(where[0], 1, is_first=True, is_last=len(where) == 1)
        end_s = first.weight_grad_s + self._finish_s(where[0], first, 1 if layout.replicas else num_pipelines)
        end_s += self._swap_s(layout)
        return soonest_end_s(self.job.model.layers, legs, queue_s, end_s, within_s)

    # Hops.

    def link(self, source: int, target: int) -> Link:
        """What the WAN offers from one to the other."""
        return self._links[source][target]

    @cached_property
    def _links(self) -> list[list[Link]]:
        names = [dc.name for dc in self.cluster.datacenters]
        return [[self.cluster.link(here, there) for there in names] for here in names]

    def transfer_s(self, source: int, target: int, sharing: int = 1) -> float:
        """A microbatch of one of the pipelines that share a pair, in that direction."""
        if sharing not in self._transfers:
            self._transfers[sharing] = [[self._transfer_s(link, sharing) for link in row] for row in self._links]
        return self._transfers[sharing][source][target]

    def _transfer_s(self, link: Link, sharing: int) -> float:
        capped = link.pair_cap is not None or link.capacity is not None
        return transfer_bytes(self.job) / pair_rate(link, connections_for(link), sharing) if capped else 0.0

    def hop_cost(self, here: int, there: int) -> float:
        """Seconds that a hop adds, there and back."""
        return self._round_trips[here][there] + self._on_wire[here][there]

    @cached_property
    def measures(self) -> list[Measure]:
        """How far apart data centers are: by latency, by time on the wire, and by both in equal parts.

        Twice the bandwidth everywhere changes none of them in what is nearer, so that the same ways are tried: more
        bandwidth does not lead to a worse plan.
        """
        telling = [table for table in (self._round_trips, self._on_wire) if len(_hops(table)) > 1]
        measures = [_measure(table) for table in telling or [self._round_trips]]
        if len(telling) == 2:
            scales = [1 / max(_hops(table)) for table in telling]
            pairs = [zip(*rows, strict=True) for rows in zip(*telling, strict=True)]
            measures.append(_measure([[a * scales[0] + b * scales[1] for a, b in row] for row in pairs]))
        return measures

    @cached_property
    def _round_trips(self) -> list[list[float]]:
        every = range(len(self.numbers))
        return [[((self.link(a, b).rtt_s or 0.0) + (self.link(b, a).rtt_s or 0.0)) / 2 for b in every] for a in every]

    @cached_property
    def _on_wire(self) -> list[list[float]]:
        every = range(len(self.numbers))
        return [[self.transfer_s(a, b) + self.transfer_s(b, a) for b in every] for a in every]

    # Floors.

    def quick_floor_s(self, num_stages: int, num_pipelines: int, *, across: bool) -> float:
        """No step is shorter: the longest stage, on the fastest slots, with layers cut as fine as one likes; or the
        bytes over the best link, if one must be crossed.

        Each pipeline gets its share of a data center's slots; `across`, some have all their stages in the fastest.
        """
        room = [num_stages if across and have else have // num_pipelines for have in self.numbers]
        longest = self._longest_stage_s(num_stages, room)
        if max(room) < num_stages:
            longest = max(longest, self._fastest_transfer_s)
        return self.num_microbatches(num_pipelines) * longest

    @cached_property
    def _fastest_transfer_s(self) -> float:
        """Over the best link there is, the slower direction."""
        pairs = combinations(range(len(self.numbers)), 2)
        return min((max(self.transfer_s(a, b), self.transfer_s(b, a)) for a, b in pairs), default=0.0)

    def _longest_stage_s(self, num_stages: int, room: list[int]) -> float:
        middles, last = self._fastest
        layers = self.job.model.layers
        if last.layer_s <= 0:  # measured
            return min(last.seconds(1), min(load.seconds(1) for load, _ in middles))
        if num_stages == 1:
            return last.seconds(layers)
        layers_per_s, left = 1 / last.layer_s, num_stages - 1
        for load, dc in middles:
            taken = min(left, room[dc])
            layers_per_s += taken / load.layer_s
            left -= taken
        longest = (layers + last.base_s / last.layer_s) / layers_per_s
        return max(longest, math.ceil(layers / num_stages) * last.layer_s)

    @cached_property
    def _fastest(self) -> tuple[list[tuple[Load, int]], Load]:
        """Data centers by the time of a layer in the middle of a pipeline, and the least at its end."""
        usable = [dc for dc, have in enumerate(self.numbers) if have]
        middles = [(self.load(dc, 1, is_first=False, is_last=False), dc) for dc in usable]
        lasts = [self.load(dc, 1, is_first=False, is_last=True) for dc in usable]
        return sorted(middles, key=lambda entry: entry[0].layer_s), min(lasts, key=lambda load: load.layer_s)

    def floor_s(self, layout: Layout) -> float:
        """A tighter one for stages that are placed; the simulator's bound has more, and takes a hundred times longer.

        A slot does its work after the first microbatch has reached it and before the last is home, or after the first
        has come back to it, and then come all-reduce and optimizer; a WAN channel carries its bytes between the first
        result and the last one's way home.
        """
        way = _Way(self.num_microbatches(layout.num_pipelines))
        layers, pooled = layout.layers, layout.pipelines_per_cell
        last = len(layers) - 1
        swap_s = self._swap_s(layout)
        stage = 0
        for place, (dc, stages) in enumerate(layout.placement):
            if place:
                before, stages_before = layout.placement[place - 1]
                sharing = self._sharing(before, stages_before, dc, layout.num_pipelines)
                way.hop(*self._hop(before, dc, sharing, pooled), *self._hop(dc, before, sharing, pooled))
            end = stage + stages
            while stage < end:
                count = 1
                while stage > 0 and stage + count < min(end, last) and layers[stage + count] == layers[stage]:
                    count += 1
                cost = self.cost(dc, layers[stage], is_first=stage == 0, is_last=stage == last)
                copies = 1 if layout.replicas else layout.num_pipelines
                finish_s = self._finish_s(dc, cost, copies) + (swap_s if stage in (0, last) else 0.0)
                way.stages(count, cost, 0.0 if stage == last else self.recompute_s(cost), finish_s)
                stage += count
        return way.floor_s

    def _swap_s(self, layout: Layout) -> float:
        """Of the gradients of a tied embedding, between the two ends of the pipeline."""
        (first, _), (last, _) = layout.placement[0], layout.placement[-1]
        layers = layout.layers
        if len(layers) == 1 or not self.job.model.tied_embeddings:
            return 0.0
        gradient_bytes = min(
            self.cost(first, layers[0], is_first=True, is_last=False).gradient_bytes,
            self.cost(last, layers[-1], is_first=False, is_last=True).gradient_bytes,
        )
        here, there = (self.cluster.datacenters[dc] for dc in (first, last))
        return swap_between(
            self.cluster,
            here,
            there,
            size_bytes=swapped_bytes(self.job, gradient_bytes),
            width=self.tensor_parallel,
            copies=1 if layout.replicas else layout.num_pipelines,
            connections="auto",
        ).total_s

    def _sharing(self, here: int, stages: int, there: int, num_pipelines: int) -> int:
        """Pipelines that share a pair of nodes, from the last of so many stages here to the first one there."""
        per_node = [self.cluster.datacenters[dc].slots_per_node(self.tensor_parallel) for dc in (here, there)]
        ends = Row((stages - 1) * num_pipelines, per_node[0]), Row(0, per_node[1])
        return most_on_a_pair([ends], num_pipelines)

    def _hop(self, source: int, target: int, sharing: int, pooled: int) -> tuple[float, float]:
        """One way: seconds on a pipeline's own channel, and the least until a transfer has arrived."""
        alone = self.transfer_s(source, target, sharing)
        return alone, alone / pooled + (self.link(source, target).rtt_s or 0.0) / 2


def _hops(table: list[list[float]]) -> set[float]:
    """What is in the table, without the way from a data center to itself; rounded, so that equals are equal."""
    return {float(f"{value:.9g}") for a, row in enumerate(table) for b, value in enumerate(row) if a != b}


def _measure(table: list[list[float]]) -> Measure:
    return lambda here, there: table[here][there]


class _Way:
    """The way down a pipeline and back, stage by stage; `out` and `home` are seconds from and to stage 0."""

    def __init__(self, microbatches: int) -> None:
        self.all, self.others = microbatches, microbatches - 1
        self.out = self.home = self.queue = self.compute = self.after_return = 0.0
        self.end: float | None = None
        """What follows the last input gradient on stage 0."""

    def hop(self, alone_s: float, out_s: float, alone_back_s: float, home_s: float) -> None:
        """On to the next data center."""
        # Others wait for the channel while the first is already on its way, which pooling made shorter.
        self.queue = max(self.queue, self.others * alone_s, self.others * alone_back_s)
        self.out += out_s
        self.home += home_s

    def stages(self, count: int, cost: StageCost, recompute_s: float, finish_s: float) -> None:
        """So many equal stages: the last of them has the most before and behind it, the first is back last."""
        backward, weights = cost.input_grad_s, cost.weight_grad_s
        if self.end is None:
            self.end = weights + finish_s
        again = self.others * (recompute_s + backward) + self.all * weights + finish_s
        self.after_return = max(self.after_return, again - self.home)
        self.out += (count - 1) * cost.forward_s
        self.home += (count - 1) * backward
        work = self.all * (cost.forward_s + recompute_s + backward)
        self.compute = max(self.compute, self.out + work + max(self.home + self.end, self.all * weights + finish_s))
        self.out += cost.forward_s
        self.home += backward

    @property
    def floor_s(self) -> float:
        there_and_back = self.out + self.home
        return max(self.compute, there_and_back + max(self.queue + (self.end or 0.0), self.after_return))
