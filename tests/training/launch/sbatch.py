"""The `#SBATCH` lines of a batch script, read as sbatch reads them; options as its manual lists them (Slurm 24.11)."""

import re

_WITH_VALUE = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container container-id
core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude
export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres
gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
ntasks-per-socket open-mode output partition prefer priority profile propagate qos reservation segment signal
sockets-per-node switches thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes
wckey wrap
"""
_WITHOUT_VALUE = """
contiguous exclusive get-user-env hold ignore-pbs nice no-kill no-requeue oom-kill-step overcommit oversubscribe
parsable quiet reboot requeue spread-job stepmgr test-only use-min-nodes verbose wait
"""
_VALUES = {
    "nodes": r"\d+(-\d+)?",
    "ntasks-per-node": r"\d+",
    "gpus-per-node": r"([a-z]\w*:)?\d+",
    "mem": r"\d+[KMGT]?",
    "time": r"(\d+-)?\d+(:\d+){0,2}",
    "open-mode": r"append|truncate",
    "job-name": r"\S+",
    "output": r"\S+",
    "nodelist": r"[\w.,\[\]-]+",
}


def read(script: str) -> dict[str, str]:
    """Options and values; AssertionError for what sbatch would refuse or overlook."""
    lines = script.splitlines()
    assert lines[0].startswith("#!"), "sbatch refuses a script without an interpreter"
    begins = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[begins:]), "sbatch overlooks options after a command"
    found: dict[str, str] = {}
    for line in lines[:begins]:
        if not line.startswith("#SBATCH"):
            continue
        match = re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line)
        assert match, f"not an option: {line}"
        name, value = match[1], match[2]
        known = _WITHOUT_VALUE if value is None else _WITH_VALUE
        assert name in known.split(), f"sbatch does not know this: {line}"
        assert name not in found, f"given twice: {line}"
        if value is not None and name in _VALUES:
            assert re.fullmatch(_VALUES[name], value), f"not a value: {line}"
        found[name] = value or ""
    return found
