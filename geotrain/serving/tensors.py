"""Tensors as they travel: dtype and shape in a header, the bytes behind it."""

import torch

from geotrain.serving.messages import Tensor


def pack(tensor: torch.Tensor) -> tuple[Tensor, memoryview]:
    """What to say of a tensor, and its bytes; they are the tensor's own if it is contiguous and in main memory."""
    flat = tensor.detach().cpu().contiguous()
    dtype = str(flat.dtype).removeprefix("torch.")
    about = Tensor.model_validate({"dtype": dtype, "shape": tuple(flat.shape)})
    return about, flat.view(-1).view(torch.uint8).numpy().data


def unpack(about: Tensor, payload: bytearray) -> torch.Tensor:
    """The tensor; it shares the payload's memory."""
    if not payload:
        return torch.empty(about.shape, dtype=getattr(torch, about.dtype))
    return torch.frombuffer(payload, dtype=getattr(torch, about.dtype)).view(about.shape)
