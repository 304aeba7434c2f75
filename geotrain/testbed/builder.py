"""Makes the namespaces of a blueprint and fills them by running the plumbing's commands inside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from typing import Literal

from geotrain.errors import RunError
from geotrain.testbed.announced import announced_window
from geotrain.testbed.blueprint import Blueprint, Node, Space
from geotrain.testbed.namespace import get_sysctl, inside, new_network, set_sysctl
from geotrain.testbed.plumbing import (
    CONGESTION,
    CONGESTION_CONTROLS,
    VETH_LATENCY_S,
    Step,
    fabric_steps,
    gates,
    sysctls,
)
from geotrain.testbed.tun import open_tun
from geotrain.testbed.wan import PROBE, netem_steps, tun_steps

WanKind = Literal["netem", "forwarder"]
COMMAND_DEADLINE_S = 20.0
WINDOW_TOLERANCE = 1.1


class Builder:
    """The namespaces as open files; they vanish with the process that holds them."""

    def __init__(self, blueprint: Blueprint, wanted: Literal["auto", "netem", "forwarder"]) -> None:
        for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")):
            if shutil.which(tool) is None:
                raise RunError(f"the command {tool!r} is missing; `apt-get install {package}` brings it")
        self.blueprint = blueprint
        spaces = [*gates(blueprint), *(node.space for node in blueprint.nodes)]
        self.spaces: dict[Space, int] = {space: new_network() for space in spaces}
        self.kind: WanKind = self._choose(wanted)
        self.devices: dict[Node, int] = {}
        self.carried = frozenset(
            site.dc for site in blueprint.sites if self.kind == "forwarder" and site.fabric.latency_s > VETH_LATENCY_S
        )

    def path(self, space: Space) -> str:
        """A name that other processes can enter the namespace by."""
        return f"/proc/{os.getpid()}/fd/{self.spaces[space]}"

    def inode(self, space: Space) -> int:
        """What /proc shows for processes inside."""
        return os.fstat(self.spaces[space]).st_ino

    def build(self) -> None:
        """Devices, addresses, routes and limits in all of them."""
        for space, network in self.spaces.items():
            with inside(network):
                self._prepare(space)
        for node in self.blueprint.nodes if self.kind == "forwarder" else ():
            with inside(self.spaces[node.space]):
                self.devices[node] = open_tun("wan")
        self.run(fabric_steps(self.blueprint, self.path, carried=self.carried, netem=self.kind == "netem"))
        if self.kind == "netem":
            steps = list(netem_steps(self.blueprint, self.path))
            self.run(step for step in steps if step.tool == "ip")
            self._settle_windows()
            self.run(step for step in steps if step.tool == "tc")
        else:
            self.run(tun_steps(self.blueprint, carried=self.carried))

    def congestion(self) -> str:
        """The TCP congestion control that the nodes got."""
        with inside(self.spaces[self.blueprint.nodes[0].space]):
            return get_sysctl(CONGESTION)

    def run(self, steps: Iterable[Step]) -> None:
        """Run every step inside its namespace; RunError names the line that failed."""
        for step in steps:
            with inside(self.spaces[step.space]):
                error = _batch(step)
            if error:
                raise RunError(f"`{step.tool}` failed in {step.space}: {error}")

    def _choose(self, wanted: Literal["auto", "netem", "forwarder"]) -> WanKind:
        if wanted == "forwarder":
            return "forwarder"
        space = next(iter(self.spaces))
        with inside(self.spaces[space]):
            missing = _batch(Step(space, "tc", (PROBE,)))
            if not missing:
                _batch(Step(space, "tc", ("qdisc del dev lo root",)))
        if missing and wanted == "netem":
            raise RunError(f"this kernel has no netem ({missing}); `--wan forwarder` does without")
        return "forwarder" if missing else "netem"

    def _settle_windows(self) -> None:
        """Tighten receive buffers where the kernel does not keep to a route's window; before there is any delay."""
        way = next((way for way in self.blueprint.ways if way.window_bytes is not None), None)
        if way is None or way.window_bytes is None:
            return
        target = self.blueprint.node(way.target, 0)
        sender, receiver = self.spaces[Space(way.source, 0)], self.spaces[target.space]
        if announced_window(sender, receiver, target.address) <= way.window_bytes * WINDOW_TOLERANCE:
            return
        for node in self.blueprint.nodes:
            with inside(self.spaces[node.space]):
                for name, value in sysctls(self.blueprint, node.dc, tight=True).items():
                    set_sysctl(name, value)

    def _prepare(self, space: Space) -> None:
        for name in ("all", "default"):
            set_sysctl(f"net/ipv6/conf/{name}/disable_ipv6", "1")
        if space.node is None:
            set_sysctl("net/ipv4/ip_forward", "1" if self.kind == "netem" else "0")
            return
        for name, value in sysctls(self.blueprint, space.dc).items():
            set_sysctl(name, value)
        for choice in CONGESTION_CONTROLS:
            set_sysctl(CONGESTION, choice)


def _batch(step: Step) -> str:
    """What went wrong, in the tool's words; empty if nothing did."""
    try:
        done = subprocess.run(
            [step.tool, "-batch", "-"],
            input="\n".join(step.lines) + "\n",
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {COMMAND_DEADLINE_S:.0f} s"
    if done.returncode == 0:
        return ""
    return " ".join(done.stderr.split()) or f"exit code {done.returncode}"
