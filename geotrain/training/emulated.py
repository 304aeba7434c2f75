"""Compute that only takes its time: holds the device as long as the profile says, and hands out real bytes.

For finding out what the network does to a plan, with more GPUs than there are.
"""

import torch

from geotrain.cost import StageCost
from geotrain.device import Device


class EmulatedCompute:
    """The stages of a slot on a device that is not there."""

    def __init__(self, costs: dict[int, StageCost], *, last: int, parcel_bytes: int, device: Device) -> None:
        self._costs, self._device = costs, device
        self._last = last
        self._parcel = torch.zeros(parcel_bytes, dtype=torch.uint8)

    def forward(self, stage: int, microbatch: int, given: torch.Tensor | None, *, keep: bool) -> torch.Tensor | None:
        """F."""
        self._device.hold(self._costs[stage].forward_s)
        return None if stage == self._last else self._parcel

    def recompute(self, stage: int, microbatch: int) -> None:
        """R."""
        self._device.hold(self._costs[stage].recompute_s)

    def backward(self, stage: int, microbatch: int, given: torch.Tensor | None) -> torch.Tensor | None:
        """B."""
        self._device.hold(self._costs[stage].backward_s)
        return self._parcel if stage else None

    def backward_input(self, stage: int, microbatch: int, given: torch.Tensor | None) -> torch.Tensor | None:
        """I."""
        self._device.hold(self._costs[stage].input_grad_s)
        return self._parcel if stage else None

    def backward_weight(self, stage: int, microbatch: int) -> None:
        """W."""
        self._device.hold(self._costs[stage].weight_grad_s)

    def settle(self) -> None:
        """Nothing is under way."""
