"""Manifests for Kubernetes: per data center a PyTorchJob of Kubeflow's training operator, and what it needs. Pure."""

from typing import Any

import yaml

from geotrain.errors import InputError
from geotrain.training.launch.launch import Launch
from geotrain.training.launch.process import ENVIRONMENT, RENDEZVOUS_PORT, STORE, Process
from geotrain.training.launch.scripts import (
    PLAN_FILE,
    Words,
    check_control,
    folded,
    keys_command,
    node_processes,
    plan_text,
    seat_words,
    shell,
    slugs,
    workers_lines,
)

DIRECTORY = "kubernetes"
_PLAN, _RUN, _KEYS = "/geotrain/plan", "/geotrain/run", "/geotrain/keys"
_KEY_FILES = ("ca.pem", "certificate.pem", "key.pem")

_HEAD = """\
# {dc}, its part of {plan}. Written by `geotrain launch`; yours to edit. In its pods run:
#
{seats}
#
# Needed in this cluster: Kubeflow's training operator (PyTorchJob v1); persistent volume claims that all pods can
# mount, geotrain-run for checkpoints and logs{and_data}{and_keys}.
# Pods use the network of their nodes: other data centers reach them at the nodes' addresses, over any TCP port.
# As no two of them can have the same port, each gets a node of its own, which the plan counts on.
#
# Inside this data center NCCL and gloo listen at the nodes' own addresses and ask for no key: let no other machine
# reach these ports. A NetworkPolicy does not do that, for pods that use the network of their nodes are beyond it; a
# firewall of the nodes does.
"""

_TRUSTED = """\
# More than that: the pods' agents (torchrun) meet at port {port} of the first one's node, on all its addresses, and
# unpickle what they find there. WHOEVER REACHES THAT PORT CAN RUN COMMANDS ON ALL THESE NODES: let only them reach it.
"""

_ALONE = """\
host=$POD_IP name=$POD_IP
# Where the processes of this pod meet: files for them alone, so that no port is needed.
{store}=$(mktemp --directory)
export {store}
"""

_TOGETHER = """\
# Agents rank their nodes by these names, and dial the first. RANK is the pod's number, from the operator.
host=$POD_IP name=$POD_IP is_host=true
if ((RANK > 0)); then
    printf -v name '~%04d' "$RANK"
    is_host=false
fi
"""

_SERVICE = """\
# The control address: {control} must lead to this service.
"""

_CONTAINER = """\
set -euo pipefail
export {environment}
{meeting}{workers}
exec {command}
"""

_SCRIPT = """\
#!/bin/bash
# {what}
# The clusters' kubectl contexts have the data centers' names, unless told: {example}=my-context ./{script}
set -euo pipefail
cd "$(dirname "$0")/.."
{lines}
"""

_SECRET = """\
secret() {
    local context=$1 name=$2 node file files=()
    shift 2
    for node in "$@"; do
        for file in ca.pem certificate.pem key.pem; do
            files+=("--from-file=$node.$file=keys/$node/$file")
        done
    done
    kubectl --context "$context" create secret generic "$name" "${files[@]}"
}
"""


def kubernetes_processes(launch: Launch, control: str | None) -> list[Process]:
    """What the pods run, in words of the manifests."""
    control = check_control(launch.seating, control)
    data = str(launch.data)
    if launch.data is not None and not launch.data.is_absolute():
        raise InputError(f"--data is {data!r} and must be the directory that pods see, such as /data")
    plan = f"{_PLAN}/{PLAN_FILE}"
    words = Words(
        plan=plan,
        data=data,
        out=_RUN,
        keys=_KEYS,
        first="$MASTER_ADDR",
        control=control,
        run_id=launch.run_id,
        share_files=False,
    )
    return list(node_processes(launch, words))


def kubernetes_files(launch: Launch, control: str | None, image: str | None) -> dict[str, str]:
    """Name and text of each."""
    if image is None:
        raise InputError("--image NAME is missing: a container image that has geotrain with torch")
    seating, names = launch.seating, slugs(launch.seating)
    by_dc = {process.dc: process for process in kubernetes_processes(launch, control)}
    files = {f"{name}.yaml": _manifest(launch, by_dc[dc], name, control, image) for dc, name in names.items()}
    variables = {dc: f"CONTEXT_{name.replace('-', '_').upper()}" for dc, name in names.items()}
    contexts = {dc: f'"${{{variables[dc]}:-{name}}}"' for dc, name in names.items()}

    def script(name: str, what: str, lines: list[str]) -> None:
        example = variables[seating.dcs[0]]
        files[name] = _SCRIPT.format(what=what, example=example, script=name, lines="\n".join(lines))

    if not launch.insecure:
        secrets = [
            f"secret {contexts[dc]} geotrain-{name}-keys {' '.join(seat.name for seat in seating.world(dc))}"
            for dc, name in names.items()
        ]
        what = "Makes the keys of all processes, and in each data center a secret with its own. keys/ca stays at home."
        script("keys.sh", what, [keys_command(seating), "", _SECRET, *secrets])
    applied = [
        f"kubectl --context {contexts[dc]} apply --filename {DIRECTORY}/{name}.yaml" for dc, name in names.items()
    ]
    script("apply.sh", "Starts all data centers.", applied)
    return files


def _manifest(launch: Launch, process: Process, name: str, control: str | None, image: str) -> str:
    seating, dc = launch.seating, process.dc
    nodes = seating.nodes(dc)
    leads = dc == seating.dcs[0] and len(seating.dcs) > 1
    head = _HEAD.format(
        dc=dc,
        plan=launch.plan_file.name,
        seats="\n".join(f"#   pod {n}: {', '.join(map(seat_words, seats))}" for n, seats in enumerate(nodes)),
        and_data="" if launch.data is None else "; geotrain-data",
        and_keys="" if launch.insecure else f"; the secret geotrain-{name}-keys (keys.sh)",
    )
    if len(nodes) > 1:
        head += _TRUSTED.format(port=RENDEZVOUS_PORT)
    port = int(control.rpartition(":")[2]) if leads and control else None
    parts = [head, _yaml(_config_map(launch, name))]
    if port is not None:
        parts.append(_SERVICE.format(control=control) + _yaml(_service(name, port)))
    parts.append(_yaml(_job(launch, process, name, image, port)))
    return "---\n".join(parts)


def _config_map(launch: Launch, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"geotrain-{name}-plan"},
        "data": {PLAN_FILE: plan_text(launch.seating.plan)},
    }


def _service(name: str, port: int) -> dict[str, Any]:
    chosen = {"training.kubeflow.org/job-name": f"geotrain-{name}", "training.kubeflow.org/replica-type": "master"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"geotrain-{name}-control"},
        "spec": {
            "type": "LoadBalancer",
            "selector": chosen,
            "ports": [{"name": "control", "port": port, "targetPort": port}],
        },
    }


def _job(launch: Launch, process: Process, name: str, image: str, port: int | None) -> dict[str, Any]:
    nodes = launch.seating.nodes(process.dc)
    control = [] if port is None else [{"name": "control", "containerPort": port}]
    replicas = {"Master": _replicas(launch, process, name, image, 1, control)}
    if len(nodes) > 1:
        replicas["Worker"] = _replicas(launch, process, name, image, len(nodes) - 1, [])
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": f"geotrain-{name}"},
        "spec": {"runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 10}, "pytorchReplicaSpecs": replicas},
    }


def _replicas(
    launch: Launch, process: Process, name: str, image: str, count: int, ports: list[dict[str, Any]]
) -> dict[str, Any]:
    nodes = launch.seating.nodes(process.dc)
    script = _CONTAINER.format(
        environment=" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items()),
        meeting=_TOGETHER if len(nodes) > 1 else _ALONE.format(store=STORE),
        workers="\n".join(workers_lines(nodes, "RANK")),
        command=folded(shell(process.command), indent=0),
    )
    volumes = _volumes(launch, process.dc, name)
    container = {
        "name": "pytorch",
        "image": image,
        "command": ["bash", "-c"],
        "args": [script],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"name": "pytorchjob-port", "containerPort": RENDEZVOUS_PORT}, *ports],
        "resources": {"limits": {"nvidia.com/gpu": len(nodes[0])}},
        "volumeMounts": [{"name": volume["name"], "mountPath": path} for path, volume in volumes.items()],
    }
    pod = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "containers": [container],
        "volumes": list(volumes.values()),
    }
    return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}


def _volumes(launch: Launch, dc: str, name: str) -> dict[str, dict[str, Any]]:
    """By where they are mounted."""
    volumes: dict[str, dict[str, Any]] = {
        _PLAN: {"name": "plan", "configMap": {"name": f"geotrain-{name}-plan"}},
        _RUN: {"name": "run", "persistentVolumeClaim": {"claimName": "geotrain-run"}},
        # NCCL passes data between the GPUs of a node through shared memory; a container's own is small.
        "/dev/shm": {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    }
    if launch.data is not None:
        claim = {"claimName": "geotrain-data", "readOnly": True}
        volumes[str(launch.data)] = {"name": "data", "persistentVolumeClaim": claim}
    if not launch.insecure:
        seats = [seat.name for seat in launch.seating.world(dc)]
        items = [{"key": f"{seat}.{file}", "path": f"{seat}/{file}"} for seat in seats for file in _KEY_FILES]
        secret = {"secretName": f"geotrain-{name}-keys", "defaultMode": 0o400, "items": items}
        volumes[_KEYS] = {"name": "keys", "secret": secret}
    return volumes


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such, so that people can read and edit it."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _yaml(content: dict[str, Any]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000)
