"""Manifests for Kubernetes: per data center a PyTorchJob of Kubeflow's training operator, and what it needs. Pure."""

from typing import Any

import yaml

from geotrain.errors import InputError
from geotrain.training.launch.launch import Launch
from geotrain.training.launch.process import ENVIRONMENT, STORE, Process
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
_OPERATORS_PORT = 29401
"""The operator wants one. Nothing listens there; as it is the node's, no node gets two pods."""

_HEAD = """\
# {dc}, its part of {plan}. Written by `geotrain launch`; yours to edit. In its pods run:
#
{seats}
#
# Needed in this cluster: Kubeflow's training operator (PyTorchJob v1); persistent volume claims that all pods can
# mount, geotrain-run for checkpoints and logs{and_data}{and_keys}.
{shared}# Pods use the network of their nodes: other data centers reach them at the nodes' addresses, over any TCP port.
# As no two of them can have the same port, each gets a node of its own, which the plan counts on.
#
# Inside this data center NCCL and gloo listen at the nodes' own addresses and ask for no key: let no other machine
# reach these ports. A NetworkPolicy does not do that, for pods that use the network of their nodes are beyond it; a
# firewall of the nodes does.
"""

_SHARED = """\
# The pods of this data center meet in files of geotrain-run: it must allow ReadWriteMany, and all pods must see each
# other's flock on it, as on NFS 4, CephFS and Lustre with `-o flock`; not on NFS mounted with `nolock` or
# `local_lock=flock`, nor on buckets mounted as files. Let no other user write there: pods run what the files say.
"""

_ALONE = """\
# Where the processes of this pod meet: files for them alone, so that no port is needed.
{store}=$(mktemp --directory)
export {store}
"""

_TOGETHER = """\
# Where the pods of this data center meet: files for this user alone, so that no port is needed, in a directory for each
# attempt. While a pod lives it holds a lock; one that starts, or starts again, joins those that do. If there are none,
# what is there is left from an attempt that is over, and another one begins.
meeting={meeting}
(umask 077 && mkdir --parents "$meeting" && touch "$meeting/choosing" "$meeting/alive")
chmod 700 "$meeting"
exec 8<>"$meeting/choosing" 9<>"$meeting/alive"
flock --timeout 600 8
if flock --nonblock 9; then
    rm --recursive --force "$meeting"/attempt-*
    mktemp --directory "$meeting/attempt-XXXXXXXX" > /dev/null
fi
flock --shared 9
exec 8>&-
{store}=$(echo "$meeting"/attempt-*)
export {store}
"""

_SERVICE = """\
# The control address: {control} must lead to this service.
"""

_CONTAINER = """\
set -euo pipefail
export {environment}
# Agents rank their nodes by these names. RANK is the pod's number, from the operator.
host=$POD_IP
printf -v name '%04d' "$RANK"
{workers}
{meeting}exec {command}
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
        control=control,
        run_id=launch.run_id,
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
        shared=_SHARED if len(nodes) > 1 else "",
    )
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
    meeting = _TOGETHER if len(nodes) > 1 else _ALONE
    script = _CONTAINER.format(
        environment=" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items()),
        meeting=meeting.format(store=STORE, meeting=f"{_RUN}/rendezvous/{name}"),
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
        "ports": [{"name": "pytorchjob-port", "containerPort": _OPERATORS_PORT}, *ports],
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
