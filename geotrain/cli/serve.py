"""`geotrain serve`: a model behind OpenAI's interface, prefilled in the bubbles of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geotrain.cli._plan import PlanArgument, opened
from geotrain.prefill.settings import LIVE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from geotrain.model import Config
    from geotrain.prefill.predictor import PrefillTime
    from geotrain.serving.http.auth import Keys
    from geotrain.serving.http.limits import Limits
    from geotrain.serving.model_card import ModelCard
    from geotrain.serving.service import Terms, Vllm
    from geotrain.serving.site import Site

_COLLECT_AFTER = 2000, 1000, 10
"""Objects, and rounds, between two looks for garbage among the young and the older ones."""


@dataclass(frozen=True, kw_only=True)
class _Access:
    """Where clients are served, which of them, and how much each may take."""

    host: str
    port: int
    keys: Keys
    metrics_keys: Keys | None
    limits: Limits
    tls: ssl.SSLContext | None

    def url(self, port: int) -> str:
        """The address that clients are given; `port` is the one that was bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{port}/v1"


def command(
    plan: PlanArgument,
    model: Annotated[
        Path, typer.Option(metavar="DIR", help="Hugging Face directory, or that of a run of `geotrain train`.")
    ],
    announce: Annotated[
        Path, typer.Option(metavar="DIR", help="Where training says when its GPUs are idle: its own --announce.")
    ] = Path("/dev/shm/geotrain"),
    dc: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this data center's GPUs; else all must be on this machine.")
    ] = None,
    node: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="With --dc: only this node's GPUs, counted from 0; else all must be on this machine.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; others than loopback need --api-keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 takes any that is free.")] = 8000,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A line for each key: key, tenant, priority 0 to 4, quotas such as requests=20 tokens=100000 rate=5.",
        ),
    ] = None,
    metrics_keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys that open /metrics and nothing else; if not given, --api-keys do."),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTTPS in place of HTTP: the certificate and those above it, in PEM."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of --tls-certificate, in PEM, without a password.")
    ] = None,
    max_connections: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most connections of clients at the same time.")
    ] = 4096,
    max_connections_per_address: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Most of them from one address; a quarter, if not given. Behind a proxy give as many as all.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What clients call the model; the directory's name, if not given."),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="tokenizer.json, where the model has none.")
    ] = None,
    slo: Annotated[
        str, typer.Option(metavar="TIME", help="Longest time to first token; who would wait longer gets 429.")
    ] = "2 s",
    degree: Annotated[
        int | None,
        typer.Option(metavar="Q", min=1, help="GPUs that share a prompt; if not given, as few as memory allows."),
    ] = None,
    guard: Annotated[
        str, typer.Option(metavar="TIME", help="Least time left free before training.")
    ] = f"{LIVE.guard_s} s",
    chunk: Annotated[
        int, typer.Option(metavar="TOKENS", min=1, help="Longest run of tokens worked on at once.")
    ] = 2048,
    times: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prefill times of `geotrain prefill calibrate`; else they are measured."),
    ] = None,
    compute: Annotated[
        Literal["torch", "emulated"],
        typer.Option(help="emulated: prefill takes as long as --like would on the plan's GPUs."),
    ] = "torch",
    like: Annotated[
        str, typer.Option(metavar="NAME", help="Model of `geotrain catalog` whose times are emulated.")
    ] = "llama-3.1-8b",
    device: Annotated[
        Literal["cpu", "cuda"],
        typer.Option(help="Where prompts are worked off. cuda: each on the GPU of its training process."),
    ] = "cpu",
    decoder_device: Annotated[
        str, typer.Option(metavar="DEVICE", help="Of torch: cpu, or a GPU that does not train, such as cuda:7.")
    ] = "cpu",
    decoder_memory: Annotated[str, typer.Option(metavar="SIZE", help="For keys and values at the decoder.")] = "2 GB",
    vllm: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A vLLM server that decodes in place of the built-in decoder; see above."),
    ] = None,
    vllm_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name there, if it is not the one here.")
    ] = None,
    handover: Annotated[
        Path, typer.Option(metavar="DIR", help="vLLM: where keys and values are laid down for it.")
    ] = Path("/dev/shm/geotrain-kv"),
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep access.jsonl and prefill.jsonl, what was done when.")
    ] = None,
    drain: Annotated[
        str, typer.Option(metavar="TIME", help="At the end, time for requests under way to finish.")
    ] = "30 s",
) -> None:
    """Serve a model from the idle time of training.

    OpenAI's completions and chat, streamed or not. Starts a prefill worker beside every training process of the plan
    and a decoder, and takes requests. Workers compute only while their GPU waits for training, as `geotrain train
    --announce DIR` says there; where no training runs, they always may. Run it where the training processes are. All
    of the plan's are taken to be on this machine; where they are not, run it once per machine, with --dc and --node:
    a process that trains elsewhere would be taken for one that does not train at all.

    With --vllm, a vLLM server on this machine decodes: keys and values are handed over through memory, block by block,
    and vLLM goes on from the first token. It must be started with geotrain installed beside it and with the
    --kv-transfer-config that this command prints; its API key, if it has one, is read from GEOTRAIN_VLLM_KEY.

    A request that no bubble can serve within --slo is answered 429 with Retry-After. SIGTERM or Ctrl-C ends the
    service: requests under way are finished, new ones get 503.

    Examples:

        geotrain launch plan.yaml --on local --data data --out run -- --announce /dev/shm/run

        geotrain serve plan.yaml --model earlier-run --announce /dev/shm/run

        curl localhost:8000/v1/completions --json '{"model": "earlier-run", "prompt": "The sea", "max_tokens": 20}'

        geotrain serve plan.yaml --model Llama-3.2-1B --vllm http://127.0.0.1:8001/v1

        geotrain serve plan.yaml --model Llama-3.2-1B --dc east --node 0 --device cuda

        geotrain serve plan.yaml --model run --host 0.0.0.0 --api-keys keys --tls-certificate cert.pem --tls-key key.pem
    """
    import tempfile
    from dataclasses import replace

    from geotrain.cli._model import served_directory
    from geotrain.cli._quantity import duration, quantity
    from geotrain.errors import InputError
    from geotrain.files import make_private
    from geotrain.units import SIZE

    try:
        import fastapi  # noqa: F401
        import torch
        import uvicorn  # noqa: F401

        from geotrain.model import Config, weights
    except ImportError as error:
        raise InputError(f"serving needs {error.name}: pip install 'geotrain[serve]'") from None
    from geotrain.serving.http.auth import Keys
    from geotrain.serving.http.limits import Limits
    from geotrain.serving.http.schemas import MAX_NAME
    from geotrain.serving.http.server import check_address
    from geotrain.serving.http.tls import server_context
    from geotrain.serving.model_card import ModelCard
    from geotrain.serving.service import Terms, lease_s
    from geotrain.serving.site import site

    for option, value in (("--device", device), ("--decoder-device", decoder_device)):
        if value != "cpu" and not torch.cuda.is_available():
            raise InputError(f"{option} is {value} and must be cpu: torch finds no GPU here")
    settings = replace(
        LIVE,
        slo_s=duration("--slo", slo),
        degree=degree,
        guard_s=duration("--guard", guard),
        chunk_tokens=chunk,
        batch_tokens=min(chunk, LIVE.batch_tokens),
    )
    if (tls_certificate is None) != (tls_key is None):
        raise InputError("--tls-certificate and --tls-key must be given together")
    access = _Access(
        host=host,
        port=port,
        keys=Keys() if api_keys is None else Keys.load(api_keys),
        metrics_keys=None if metrics_keys is None else Keys.load(metrics_keys),
        limits=Limits(max_connections=max_connections, max_connections_per_address=max_connections_per_address),
        tls=None if tls_certificate is None or tls_key is None else server_context(tls_certificate, tls_key),
    )
    drain_s = duration("--drain", drain)
    decoder_bytes = quantity("--decoder-memory", decoder_memory, SIZE)
    for option, path in (("--announce", announce), ("--handover", handover)):
        if path == Path():
            raise InputError(f"{option} is empty, or this directory, and must be one of its own such as /dev/shm/run")
    check_address(host, port, access.keys)
    with tempfile.TemporaryDirectory(prefix="geotrain-model-") as scratch:
        directory = served_directory(model, tokenizer, Path(scratch))
        config = Config.load(directory / "config.json")
        weights.check(directory, config)
        _check_decoder_memory(decoder_memory, decoder_bytes, config, itemsize=4 if decoder_device == "cpu" else 2)
        called = name or (model.resolve().name if model.name != "model" else model.resolve().parent.name)
        if len(called) > MAX_NAME:
            raise InputError(f"--name has {len(called)} characters and must have at most {MAX_NAME}, as requests may")
        card = ModelCard.load(
            directory,
            name=called,
            created=int((directory / "config.json").stat().st_mtime),
            max_model_len=config.max_position_embeddings,
            vocab_size=config.vocab_size,
        )
        with opened(plan) as loaded:
            here = site(loaded, config.shape(called), settings, dc=dc, node=node)
            if device == "cuda" and max(here.local_ranks) >= torch.cuda.device_count():
                asked, found = 1 + max(here.local_ranks), torch.cuda.device_count()
                raise InputError(f"--device cuda: the plan has {asked} GPUs per machine, and torch finds {found} here")
            assert here.layers(), "workers, or an error that says why there are none"
        terms = Terms(
            model=directory,
            windows=announce,
            times=_times(here, times, emulated=compute == "emulated", like=like),
            emulated=compute == "emulated",
            device=device,
            decoder_device=decoder_device,
            vllm=None if vllm is None else _vllm(vllm, vllm_model or called, handover),
            decoder_bytes=decoder_bytes,
            lease_s=lease_s(settings),
        )
        try:
            make_private(announce)
        except OSError as error:
            raise InputError(f"--announce: {announce} cannot be used: {error.strerror}") from None
        _serve(here, card, terms, access, out, drain_s)


def _check_decoder_memory(text: str, size_bytes: float, config: Config, *, itemsize: int) -> None:
    from geotrain.errors import InputError
    from geotrain.serving.contract import BLOCK_TOKENS
    from geotrain.serving.decoding import token_bytes

    if size_bytes < (least := BLOCK_TOKENS * token_bytes(config, itemsize)):
        what = f"keys and values of {BLOCK_TOKENS} tokens of this model"
        raise InputError(f"--decoder-memory is {text!r} and must be at least {least} B: {what}")


def _vllm(url: str, called: str, directory: Path) -> Vllm:
    import os
    from urllib.parse import urlsplit

    from geotrain.errors import InputError
    from geotrain.files import make_private
    from geotrain.serving.service import Vllm
    from geotrain.serving.vllm.server import transfer_config

    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of a port that is none, or half an IPv6 address
        is_address = False
    if not is_address:
        raise InputError(f"--vllm is {url!r} and must be an address such as http://127.0.0.1:8001/v1")
    try:
        make_private(directory)
    except OSError as error:
        raise InputError(f"--handover: {directory} cannot be used: {error.strerror}") from None
    typer.echo(f"vLLM must have been started with --kv-transfer-config '{transfer_config(directory)}'", err=True)
    return Vllm(url=url, called=called, directory=directory, key=os.environ.get("GEOTRAIN_VLLM_KEY", ""))


def _times(site: Site, file: Path | None, *, emulated: bool, like: str) -> Mapping[str, PrefillTime] | None:
    """By GPU; None if they have to be measured."""
    from geotrain.errors import InputError
    from geotrain.prefill.calibration import Calibrations, prefill_time
    from geotrain.workload.catalog import find_model

    cluster = site.scene.plan.cluster
    gpus = {cluster.gpu_kind(dc.name): dc.gpu for dc in cluster.datacenters}
    if emulated:
        try:
            emulates = find_model(like)
        except ValueError as error:
            raise InputError(f"--like {like}: {error}") from None
        return {name: prefill_time(emulates, gpus[name], 1)[0] for name in site.gpus}
    if file is None:
        return None
    calibrations = Calibrations.load(file)
    found = {name: calibrations.find((site.model.name.lower(), gpus[name].name.lower(), 1)) for name in site.gpus}
    for name, calibration in found.items():
        if calibration is None:
            raise InputError(f"{file}: has no times of {site.model.name} on {gpus[name].name}")
    return {name: calibration.time for name, calibration in found.items() if calibration is not None}


def _serve(
    site: Site,
    card: ModelCard,
    terms: Terms,
    access: _Access,
    out: Path | None,
    drain_s: float,
) -> None:
    import asyncio
    import gc
    import math
    import signal
    import sys
    import time
    from contextlib import ExitStack, closing, suppress

    from geotrain.errors import InputError
    from geotrain.serving.http.access_log import AccessLog, RotatingFile
    from geotrain.serving.http.api import create_app
    from geotrain.serving.http.readers import Readers
    from geotrain.serving.http.server import listening
    from geotrain.serving.journal import Journal
    from geotrain.serving.metrics import Metrics
    from geotrain.serving.service import service

    def say(words: str) -> None:
        typer.echo(words, err=True)

    async def first(*futures: asyncio.Future[Any]) -> None:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)

    async def serve(log: AccessLog, journal: Journal) -> None:
        ended, metrics, over_s = asyncio.Event(), Metrics(), -math.inf

        def left_s() -> float:
            return over_s - time.monotonic()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with (
            service(site, card, terms, metrics=metrics, journal=journal, say=say) as running,
            Readers(running.reception.models) as readers,
        ):
            await readers.start()
            app = create_app(
                running.reception,
                readers,
                keys=access.keys,
                metrics_keys=access.metrics_keys,
                limits=access.limits,
                metrics=metrics,
                log=log,
            )
            async with listening(
                app,
                host=access.host,
                port=access.port,
                keys=access.keys,
                limits=access.limits,
                metrics=metrics,
                left_s=left_s,
                tls=access.tls,
            ) as bound:
                say(f"{card.name}: {len(site.layers())} workers and a decoder are starting")
                starting = asyncio.create_task(running.started())
                ending = asyncio.create_task(ended.wait())
                await first(starting, ending, running.failed)
                if starting.done() and not ended.is_set():
                    starting.result()
                    # Requests leave no cycles behind; looking for some after every few of them makes others wait.
                    gc.collect()
                    gc.freeze()
                    gc.set_threshold(*_COLLECT_AFTER)
                    say(f"serving {card.name} at {access.url(bound)}")
                    await first(ending, running.failed)
                if running.failed.done():
                    running.failed.result()
                say(f"ending: {running.requests.under_way} requests under way")
                running.reception.drain()
                over_s = time.monotonic() + drain_s
                await running.requests.idle(drain_s)

    with ExitStack() as files:
        journal = Journal(None if out is None else out / "prefill.jsonl")
        files.callback(journal.close)
        try:
            stream = sys.stdout if out is None else files.enter_context(closing(RotatingFile(out / "access.jsonl")))
        except OSError as error:
            raise InputError(f"{out}: cannot be written: {error.strerror}") from None
        factory = None
        with suppress(ImportError):
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(serve(AccessLog(stream), journal))
