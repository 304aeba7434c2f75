"""WHAT WE RUN: a model, a batch and how it is trained."""

from geotrain.workload.catalog import MODELS
from geotrain.workload.efficiency import Efficiency
from geotrain.workload.job import Job, Profile, Recompute, StageProfile
from geotrain.workload.model import Model, RopeScaling

__all__ = ["MODELS", "Efficiency", "Job", "Model", "Profile", "Recompute", "RopeScaling", "StageProfile"]
