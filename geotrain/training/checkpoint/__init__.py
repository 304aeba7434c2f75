"""Checkpoint and resume: a directory per step and stage, written in the background, read into any layout.

A stage is written by its own processes alone and appears as a whole; a step is complete when all its stages are. The
names of tensors say nothing about stages, pipelines or parts, so a checkpoint outlives the layout that wrote it.
"""

from geotrain.training.checkpoint.agreement import agree, common
from geotrain.training.checkpoint.export import OPTIMIZER, export
from geotrain.training.checkpoint.loading import available, is_good, load, shortcoming
from geotrain.training.checkpoint.manifest import DamagedError, Position
from geotrain.training.checkpoint.saver import Saver
from geotrain.training.checkpoint.steps import SavedStep, StepId, prune, steps

__all__ = [
    "OPTIMIZER",
    "DamagedError",
    "Position",
    "SavedStep",
    "Saver",
    "StepId",
    "agree",
    "available",
    "common",
    "export",
    "is_good",
    "load",
    "prune",
    "shortcoming",
    "steps",
]
