"""Jobs and plans for tests of cost: catalog models with a few choices changed."""

from pathlib import Path
from typing import Any

from geotrain.plan import Plan
from geotrain.workload import Job


def make_job(model: str | dict[str, Any] = "gpt-a", **choices: Any) -> Job:
    """One microbatch of that model."""
    return Job.parse({"model": model, "microbatches": 1} | choices, source=Path("job.yaml"))


def make_plan(*layers: int, gpus: tuple[str, ...] = ("a100-80gb",), job: Job, **choices: Any) -> Plan:
    """Stages of that many layers; each GPU type has its data center, and the stages go round them."""
    cluster = {
        "datacenters": [{"name": f"dc{n}", "nodes": 8, "gpus_per_node": 8, "gpu": gpu} for n, gpu in enumerate(gpus)]
    }
    stages = [{"dc": f"dc{n % len(gpus)}", "layers": number} for n, number in enumerate(layers)]
    content = {"cluster": cluster, "job": job, "stages": stages, "schedule": "1f1b"} | choices
    return Plan.parse(content, source=Path("plan.yaml"))
