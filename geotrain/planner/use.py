"""What a plan puts where, one data center at a time, and how it goes across them."""

from dataclasses import dataclass

from geotrain.plan import Plan


@dataclass(frozen=True, kw_only=True)
class DatacenterUse:
    """One data center of a plan."""

    dc: str
    stages: tuple[int, ...]
    layers: int
    """Of one copy of the model."""
    pipelines: int
    """Copies that have stages here."""
    gpus: int
    """In use."""
    has_gpus: int


def uses(plan: Plan) -> list[DatacenterUse]:
    """The data centers in use: in the order of the pipeline, then the ones that hold whole copies."""
    groups = {dc.name: pipelines for dc, pipelines in plan.groups} if plan.replicas else {}
    used = [*dict.fromkeys(stage.dc for stage in plan.stages), *(replica.dc for replica in plan.replicas)]
    found = []
    for name in used:
        whole = name in groups
        stages = tuple(s for s, stage in enumerate(plan.stages) if whole or stage.dc == name)
        pipelines = groups.get(name, plan.num_pipelines)
        found.append(
            DatacenterUse(
                dc=name,
                stages=stages,
                layers=sum(plan.stages[s].layers for s in stages),
                pipelines=pipelines,
                gpus=len(stages) * pipelines * plan.tensor_parallel,
                has_gpus=plan.cluster.datacenter(name).num_gpus,
            )
        )
    return found


def num_cells(plan: Plan) -> int:
    """Cells in all data centers."""
    return plan.num_pipelines // plan.pipelines_per_cell


def used_datacenters(plan: Plan) -> list[str]:
    """Names, in the same order."""
    return [use.dc for use in uses(plan)]


def unused_datacenters(plan: Plan) -> list[str]:
    """Names, in the order of the cluster file."""
    used = used_datacenters(plan)
    return [dc.name for dc in plan.cluster.datacenters if dc.name not in used]


def kind_of(plan: Plan) -> str:
    """How the plan goes across data centers, in words."""
    used = used_datacenters(plan)
    if plan.replicas:
        return f"data parallel across {listed(used)}"
    return f"pipeline across {listed(used)}" if len(used) > 1 else f"all in {used[0]}"


def listed(names: list[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
