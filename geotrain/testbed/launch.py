"""Starts the keeper of a testbed and waits until it is up."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Literal

from geotrain.errors import GeotrainError, InputError, RunError
from geotrain.files import place_of
from geotrain.testbed.blueprint import Blueprint
from geotrain.testbed.keeper import Orders
from geotrain.testbed.record import MARK, Files, Record, own_start

DEADLINE_S, DEADLINE_PER_NODE_S = 30.0, 0.5
_ENDING_S = 30.0


def launch(
    files: Files, blueprint: Blueprint, *, wan: Literal["auto", "netem", "forwarder"], attached: bool
) -> tuple[Record, subprocess.Popen[bytes]]:
    """Bring a testbed up; attached, it ends with this process. Whatever fails leaves nothing behind."""
    orders = Orders(
        state=str(place_of(files.state)),
        name=files.name,
        identity=secrets.token_hex(8),
        created=time.time(),
        wan=wan,
        attached=attached,
        blueprint=blueprint.model_dump(mode="json"),
    )
    files.claim(
        Record(
            name=files.name,
            identity=orders.identity,
            keeper=os.getpid(),
            keeper_started=own_start(),
            created=orders.created,
            blueprint=blueprint,
        )
    )
    try:
        keeper = _start(files, orders)
        try:
            _wait(keeper, files, DEADLINE_S + DEADLINE_PER_NODE_S * len(blueprint.nodes))
            record = files.read()
            if record is None:
                raise RunError(f"the testbed {files.name!r} was taken down while it came up")
            if not attached:
                _let_go(keeper)
            return record, keeper
        except BaseException:
            end(keeper)
            raise
    except BaseException:
        files.remove()
        raise


def _start(files: Files, orders: Orders) -> subprocess.Popen[bytes]:
    with files.log.open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "geotrain.testbed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            # By which `down` finds it even if this process dies before it has written its number.
            env={**os.environ, MARK: orders.identity},
        )
    assert keeper.stdin is not None
    with suppress(BrokenPipeError):
        keeper.stdin.write(json.dumps(asdict(orders)).encode() + b"\n")
        keeper.stdin.flush()
    return keeper


def _wait(keeper: subprocess.Popen[bytes], files: Files, deadline_s: float) -> None:
    assert keeper.stdout is not None
    readable, _, _ = select.select([keeper.stdout], [], [], deadline_s)
    if not readable:
        raise RunError(f"the testbed did not come up within {deadline_s:.0f} s")
    line = keeper.stdout.readline()
    keeper.stdout.close()
    if not line:
        last = (files.log.read_text(errors="replace").strip().splitlines() or ["nothing in its log"])[-1]
        raise RunError(f"the testbed's process ended while it came up, exit code {keeper.wait(_ENDING_S)}: {last}")
    answer = json.loads(line)
    if "error" in answer:
        error: type[GeotrainError] = InputError if answer["exit_code"] == InputError.exit_code else RunError
        raise error(answer["error"])


def _let_go(keeper: subprocess.Popen[bytes]) -> None:
    assert keeper.stdin is not None
    keeper.stdin.close()
    # It outlives this process: nobody here waits for it, so Popen need not complain that nobody did.
    keeper.returncode = 0


def end(keeper: subprocess.Popen[bytes]) -> None:
    """End a keeper that is our child."""
    keeper.terminate()
    try:
        keeper.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait(_ENDING_S)
    for pipe in (keeper.stdin, keeper.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
