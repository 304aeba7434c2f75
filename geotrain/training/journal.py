"""How a run is watched, by its leading process: a progress line, `log.jsonl`, Prometheus, TensorBoard."""

import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from geotrain.errors import InputError
from geotrain.training.options import Options
from geotrain.training.report import StepReport

_LINE_EVERY_S = 0.5


class Journal:
    """Takes reports of steps; each way of watching that was asked for is told."""

    def __init__(self, options: Options, *, quiet: bool = False) -> None:
        run, self._steps, self._quiet = options.out, options.steps, quiet
        self.last: dict[str, Any] | None = None
        """What was said of the last step."""
        self._shown_at_s = 0.0
        self._full = False
        self._wan_bytes = 0
        self._gauges = None if options.metrics_port is None else _gauges(options.metrics_port)
        self._board = _board(run / "tensorboard") if options.tensorboard else None
        try:
            run.mkdir(parents=True, exist_ok=True)
            self._log: IO[str] = (run / "log.jsonl").open("a")
        except OSError as error:
            raise InputError(f"{run}: cannot be written to: {error.strerror}") from None

    def report(self, report: StepReport) -> None:
        """A step is over."""
        wan_bytes = report.wan_bytes - self._wan_bytes
        self._wan_bytes = report.wan_bytes
        figures = asdict(report) | {
            "tokens_per_s": report.tokens / report.step_time_s,
            "bubble_share": 1 - report.utilization,
            "wan_bytes": wan_bytes,
            "wan_bytes_per_s": wan_bytes / report.step_time_s,
        }
        self.last = figures
        self._write(json.dumps({"time": time.time(), **figures}) + "\n")
        if self._gauges is not None:
            for name, gauge in self._gauges.items():
                gauge.set(figures[name])
        if self._board is not None:
            for name in _FIGURES:
                self._board.add_scalar(name, figures[name], report.step)
        self._show(report, figures)

    def _write(self, line: str) -> None:
        """A full disk is no reason to stop training."""
        try:
            self._log.write(line)
            self._log.flush()
            self._full = False
        except OSError as error:
            if not self._full:
                sys.stderr.write(f"warning: log.jsonl: cannot be written: {error.strerror}; training goes on\n")
            self._full = True

    def _show(self, report: StepReport, figures: dict[str, Any]) -> None:
        last = report.step + 1 == self._steps
        now_s = time.monotonic()
        if self._quiet or (now_s - self._shown_at_s < _LINE_EVERY_S and not last):
            return
        self._shown_at_s = now_s
        parts = [
            f"step {report.step + 1}/{self._steps}",
            *([f"loss {report.loss:.4f}"] if report.loss else []),
            f"{report.step_time_s:.3f} s",
            f"{figures['tokens_per_s']:,.0f} tokens/s",
            f"busy {report.utilization:.0%}",
            f"bubbles {figures['bubble_share']:.0%}",
            f"WAN {figures['wan_bytes_per_s'] * 8 / 1e6:,.0f} Mbit/s",
        ]
        sys.stdout.write(" · ".join(parts) + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Write what is buffered."""
        with suppress(OSError):
            self._log.close()
        if self._board is not None:
            self._board.close()


_FIGURES = {
    "step": "Steps done, counted from 0",
    "loss": "Mean loss of the last step",
    "norm": "Norm of all gradients before clipping",
    "rate": "Learning rate",
    "step_time_s": "Seconds of the last step",
    "tokens_per_s": "Tokens per second in the last step",
    "utilization": "Share of the GPUs' time in which they computed",
    "bubble_share": "Share of the GPUs' time in which they were idle",
    "wan_bytes_per_s": "Bytes per second sent between data centers",
}


def _gauges(port: int) -> dict[str, Any]:
    try:
        from prometheus_client import CollectorRegistry, Gauge, start_http_server
    except ImportError:
        raise InputError("metrics need the package prometheus-client: pip install 'geotrain[train]'") from None
    registry = CollectorRegistry()
    gauges = {name: Gauge(f"geotrain_train_{name}", words, registry=registry) for name, words in _FIGURES.items()}
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise InputError(f"--metrics-port is {port}: {error.strerror}") from None
    return gauges


def _board(directory: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
    return SummaryWriter(str(directory))
