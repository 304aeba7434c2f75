"""Channels and links: which transfers of a problem share what, as the kernel's tables."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geotrain.network import Path
from geotrain.simulation import kernel
from geotrain.simulation.problem import Hop, Problem
from geotrain.timeline import Floats, Ints


@dataclass(frozen=True)
class Wiring:
    """A problem's hops, once it is decided which boundaries are pooled and how many pipelines are simulated."""

    problem: Problem
    pooled: frozenset[int]
    """Boundaries of slot stages at which a cell's pipelines take turns together."""
    alike: bool = True
    """All pipelines do the same in the same time."""

    @cached_property
    def num_pipelines(self) -> int:
        """Pipelines to simulate. Alike ones that share nothing, or share a link evenly, need only one."""
        together = not self.alike or any(map(self.is_pooled, self.problem.hops))
        return self.problem.plan.pipelines_per_cell if together else 1

    @property
    def copies(self) -> int:
        """Identical pipelines of a cell that each simulated one stands for."""
        return self.problem.plan.pipelines_per_cell // self.num_pipelines

    def is_pooled(self, hop: Hop) -> bool:
        """Whether all pairs of the cell carry that hop's transfers together."""
        return hop.own.crosses_wan and hop.boundary in self.pooled and hop.pooled.pairs > 1

    def path(self, hop: Hop) -> Path:
        """How that hop's transfers go."""
        return hop.pooled if self.is_pooled(hop) else hop.own

    @cached_property
    def channels(self) -> dict[tuple[int, int], int]:
        """Directed pairs of slot stages between which bytes take time, numbered."""
        used = dict.fromkeys((hop.source, hop.target) for hop in self.problem.hops if not self.path(hop).is_instant)
        return {ends: number for number, ends in enumerate(used)}

    @cached_property
    def links(self) -> dict[tuple[str, str], int]:
        """Directed pairs of data centers whose capacity can bind, numbered."""
        plan = self.problem.plan
        rates: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
        capacities: dict[tuple[str, str], float] = {}
        for hop in self.problem.hops:
            if hop.own.crosses_wan:
                each = plan.cells if self.is_pooled(hop) else plan.num_pipelines
                rates.setdefault(self._datacenters(hop), {})[hop.source, hop.target] = self.path(hop).rate * each
                capacities[self._datacenters(hop)] = hop.capacity
        binding = [link for link, rate in rates.items() if sum(rate.values()) > capacities[link]]
        return {link: number for number, link in enumerate(binding)}

    def _datacenters(self, hop: Hop) -> tuple[str, str]:
        stages = self.problem.plan.stages
        return stages[hop.source].dc, stages[hop.target].dc

    def hop_rows(self) -> tuple[Ints, Ints, Ints, Floats]:
        """[direction, stage]: channel, occupancy and latency in ticks, bytes of each pair."""
        problem = self.problem
        channel = np.full((2, len(problem.costs)), kernel.NOTHING, dtype=np.int64)
        occupancy_s, latency_s, size = (np.zeros(channel.shape) for _ in range(3))
        for hop in problem.hops:
            path, at = self.path(hop), (hop.direction, hop.stage)
            if not path.is_instant:
                channel[at] = self.channels[hop.source, hop.target]
                occupancy_s[at] = path.occupancy_s(problem.transfer_bytes)
                latency_s[at] = path.latency_s
                size[at] = problem.transfer_bytes / path.pairs
        return channel, problem.ticks(occupancy_s), problem.ticks(latency_s), size

    def channel_tables(self) -> tuple[Ints, Floats, Floats]:
        """The kernel's `channels`, `flows` and `links` at the start of a step."""
        plan, tick_s = self.problem.plan, 10.0**-self.problem.digits
        channels = np.zeros((len(self.channels), kernel.CHANNEL_COLUMNS), dtype=np.int64)
        flows, links = np.zeros((len(self.channels), 3)), np.zeros((len(self.links), 4))
        channels[:, [kernel.LINK, kernel.ON_WIRE]] = kernel.NOTHING
        for hop in self.problem.hops:
            path = self.path(hop)
            if not path.is_instant:
                number = self.channels[hop.source, hop.target]
                channels[number, kernel.POOLED] = self.is_pooled(hop)
                link = channels[number, kernel.LINK] = self.links.get(self._datacenters(hop), kernel.NOTHING)
                if link != kernel.NOTHING:
                    links[link, kernel.CAPACITY] = hop.capacity * tick_s / (plan.cells * self.copies)
                channels[number, kernel.PAIRS] = path.pairs
                flows[number, kernel.CAP] = path.rate / path.pairs * tick_s
        return np.tile(channels, (self.num_pipelines, 1)), np.tile(flows, (self.num_pipelines, 1)), links
