"""The Plan on torch.distributed: the same actions the simulator plays, with a real model and real bytes."""
