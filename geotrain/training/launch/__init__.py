"""Starting a run: on this machine, on a testbed, or with scripts for Slurm and Kubernetes. Does not import torch.

with Run(Launch(plan_file=..., seating=..., out=...), Loopback(seating)) as run:
    run.wait(deadline_s=600)
"""

from geotrain.training.launch.ground import Ground, Loopback, Namespaces, needed_testbed
from geotrain.training.launch.launch import Launch
from geotrain.training.launch.process import Process, processes
from geotrain.training.launch.run import ProcessFailedError, Run

__all__ = [
    "Ground",
    "Launch",
    "Loopback",
    "Namespaces",
    "Process",
    "ProcessFailedError",
    "Run",
    "needed_testbed",
    "processes",
]
