"""Processes forked from one that has loaded torch, the trainer and what torch.optim needs: that takes seconds."""

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["geotrain.training.trainer", "torch._dynamo"])
