"""Stands in for `geotrain train`: takes the same options and does what `--do` says. Says nothing of geotrain."""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    for name in ("dc", "data", "out", "control", "host", "keys", "do", "who"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    if given.dry_run:
        return
    name, out = f"{given.dc}-{os.environ['RANK']}", Path(given.out)
    do = given.do if given.who in (None, name) else "sleep"
    sys.stdout.write(f"{name} is here\n")
    if do == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif do == "fail":
        sys.stderr.write("error: no luck\n")
        sys.exit(3)
    elif do == "refuse" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        sys.stderr.write("error: data: no such directory\n")
        sys.exit(2)
    (out / f"{name}.here").touch()
    if do in ("reduce", "meet"):
        total = reduce(out, name)
        answer = {"sum": total, "met": meet(given.control, given.host, name) if do == "meet" else []}
        told = {key: value for key, value in os.environ.items() if key.startswith(("RANK", "WORLD", "LOCAL", "GEO"))}
        (out / f"{name}.json").write_text(json.dumps(answer | {"told": told, "keys": given.keys}))
        return
    if do != "leave":
        time.sleep(100)


def reduce(out: Path, name: str) -> float:
    """The sum of all ranks; the first time, the last rank of east dies in the middle of it."""
    if os.environ["WORLD_SIZE"] == "1":
        return 0.0  # At once: torch takes seconds to load.
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    torch.set_num_threads(1)
    size = int(os.environ["WORLD_SIZE"])
    store = FileStore(f"{os.environ['GEOTRAIN_STORE']}/workers-{os.environ.get('MASTER_PORT', 0)}", size)
    dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=size)
    number = torch.tensor([float(os.environ["RANK"])])
    dist.all_reduce(number)
    crash = out / "crash"
    if crash.exists() and name == "east-1":
        crash.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()
    return float(number)


def meet(control: str, own: str, name: str) -> list[str]:
    """Rank 0 of east listens at the control address, rank 0 of south dials it; each says from where."""
    host, port = control.split(":")
    if not name.endswith("-0"):
        return []
    if name == "east-0":
        with socket.create_server((host, int(port))) as server:
            peer, address = server.accept()
            with peer:
                return [peer.recv(100).decode(), address[0]]
    until = time.monotonic() + 110
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5, source_address=(own, 0)) as stream:
                stream.sendall(name.encode())
                return [stream.getpeername()[0]]
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.1)


main()
