"""Batch scripts for Slurm: one per data center, each a job of its own, and one that submits all. Pure."""

import shlex
from ipaddress import ip_address

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

DIRECTORY = "slurm"

_SCRIPT = """\
#!/bin/bash
# {dc}, its part of {plan}. Written by `geotrain launch`; yours to edit. On its nodes run:
#
{seats}
#
# Needed in this data center: geotrain with torch (pip install 'geotrain[train]'), this directory, the data{and_keys}.
# Nodes of different data centers must reach each other over TCP. Inside the data center NCCL and gloo listen at the
# nodes' own addresses and ask for no key: let no other machine reach these ports.

#SBATCH --job-name=geotrain-{slug}
#SBATCH --nodes={nodes}
# One task per node: the agent, torchrun, which starts a process for every GPU and, if one dies, all of them again.
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
# Whole nodes: the plan counts on having their network to itself.
#SBATCH --exclusive
#SBATCH --mem=0
# When the time is up, submit again: the run goes on from its newest checkpoint. So it does after a node has failed.
#SBATCH --time=1-00:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=geotrain-{slug}-%j.log
{nodelist}
set -euo pipefail

# Where things are in this data center. All its nodes see the same run directory.
{paths}

# GPUs talk over NCCL, which finds the fabric by itself. Where it does not:
# export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0
export {environment}

# Where the processes of this data center meet: files for this user alone, so that no port is needed. All nodes must see
# each other's flock on them, as NFS 4 and Lustre with `-o flock` do.
export {store}="$RUN/rendezvous/{slug}-$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}}"
(umask 077 && mkdir --parents "${store}")
trap 'rm --recursive --force "${store}"' EXIT

NODES=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
FIRST={first}
export NODES FIRST

# What every node does: find its number, take an address that other data centers reach, start the agent.
node() {{
    set -euo pipefail
    local number=0 name host workers
    if [[ $SLURMD_NODENAME != "$FIRST" ]]; then
        for name in $NODES; do
            [[ $name == "$FIRST" ]] || number=$((number + 1))
            [[ $name != "$SLURMD_NODENAME" ]] || break
        done
    fi
    # Agents rank their nodes by these names.
    printf -v name '%04d' "$number"
    {workers}
    host=$(hostname -I | cut --delimiter=' ' --fields=1)
    exec {command}
}}
export -f node

# An agent that gives up ends the job. Bound to no core, for a task's one core is all that its processes would get.
srun --kill-on-bad-exit=1 --cpu-bind=none bash -c node
"""

_SUBMIT = """\
#!/bin/bash
# Submits the jobs of all data centers. Options are sbatch's: ./submit.sh --account=me --time=2-00:00:00
# Where a data center has a Slurm of its own, say how it is reached: {example}='ssh {slug}-login' ./submit.sh
# They must start at about the same time: each waits for the others, five minutes and as often as it may restart.
# To wait longer, launch with: -- --deadline '2 h'
set -euo pipefail
{lines}
"""

_KEYS = """\
#!/bin/bash
# Makes the keys of all processes, in the run directory; run it once, at home. To each data center go its own:
{copies}
# keys/ca stays at home: its key can let anybody in.
set -euo pipefail
cd "$(dirname "$0")/.."
{command}
"""


def slurm_processes(launch: Launch, control: str | None) -> list[Process]:
    """What the nodes run, in words of the scripts."""
    control = check_control(launch.seating, control)
    words = Words(
        plan="$PLAN",
        data="$DATA",
        out="$RUN",
        keys="$KEYS",
        control=control,
        run_id="$SLURM_JOB_ID",
    )
    return list(node_processes(launch, words))


def slurm_files(launch: Launch, control: str | None) -> dict[str, str]:
    """Name and text of each."""
    seating, names = launch.seating, slugs(launch.seating)
    by_dc = {process.dc: process for process in slurm_processes(launch, control)}
    files = {f"{name}.sbatch": _script(launch, by_dc[dc], name, control) for dc, name in names.items()}
    if not launch.insecure:
        copies = "\n".join(f"#   {dc}: keys/{dc}-*" for dc in seating.dcs)
        files["keys.sh"] = _KEYS.format(copies=copies, command=keys_command(seating))
    return {**files, "submit.sh": _submit(launch, names), PLAN_FILE: plan_text(seating.plan)}


def _script(launch: Launch, process: Process, slug: str, control: str | None) -> str:
    dc, nodes, out = process.dc, launch.seating.nodes(process.dc), launch.out.absolute()
    leader = _leader(control) if control and len(launch.seating.dcs) > 1 and dc == launch.seating.dcs[0] else None
    paths = {"PLAN": out / DIRECTORY / PLAN_FILE, "RUN": out}
    paths |= {} if launch.data is None else {"DATA": launch.data.absolute()}
    paths |= {} if launch.insecure else {"KEYS": out / "keys"}
    named = f"# The others dial the control address: the job must have that node.\n#SBATCH --nodelist={leader}\n"
    seats = (f"#   node {number}: {', '.join(map(seat_words, here))}" for number, here in enumerate(nodes))
    return _SCRIPT.format(
        dc=dc,
        slug=slug,
        store=STORE,
        plan=launch.plan_file.name,
        seats="\n".join(seats),
        and_keys="" if launch.insecure else ", and keys (keys.sh)",
        nodes=len(nodes),
        gpus=len(nodes[0]),
        nodelist="" if leader is None else named,
        paths="\n".join(f"export {name}={shlex.quote(str(path))}" for name, path in paths.items()),
        environment=" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items()),
        first=leader or "${NODES%%$'\\n'*}",
        workers="\n    ".join(workers_lines(nodes, "number")),
        command=folded(shell(process.command), indent=4),
    )


def _leader(control: str) -> str:
    """The node that has the control address."""
    host = control.rpartition(":")[0]
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return shlex.quote(host)
    raise InputError(f"--control is {control!r} and must begin with a node's name, for Slurm reserves nodes by name")


def _submit(launch: Launch, names: dict[str, str]) -> str:
    variables = {name: f"SUBMIT_{name.replace('-', '_').upper()}" for name in names.values()}
    here = launch.out.absolute() / DIRECTORY
    lines = [
        f'${{{variable}:-}} sbatch "$@" {shlex.quote(str(here / f"{name}.sbatch"))}'
        for name, variable in variables.items()
    ]
    slug, example = next(iter(variables.items()))
    return _SUBMIT.format(example=example, slug=slug, lines="\n".join(lines))
