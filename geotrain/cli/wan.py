"""`geotrain wan`: what a path between two places gives, and how fast transfers go over it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain.cli._output import JsonOption, check_writable, print_json
from geotrain.cli._quantity import quantity

if TYPE_CHECKING:
    from geotrain.transport import Identity

command = typer.Typer(rich_markup_mode=None, add_completion=False)

KeysOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Directory that `geotrain keys` made; with --node, for TLS.")
]
NodeOption = Annotated[str | None, typer.Option(metavar="NAME", help="This side's name: its keys are in DIR/NAME.")]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="No keys: anybody may connect and read. For a private link only.")
]
ChartOption = Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Also draw a chart.")]
_PORT = 7470


@command.callback(
    epilog="To begin: geotrain wan serve --insecure there, geotrain wan probe HOST --insecure here",
    invoke_without_command=True,
)
def about(context: typer.Context) -> None:
    """Measure a WAN, or transfers over an emulated one.

    `serve` runs on a node in one data center, `probe` on a node in the other; what `probe` finds can be written into a
    cluster file. `bench` needs one machine only: it builds the cluster file's WAN as a testbed and times transfers.

    Examples:

        geotrain wan serve --host 10.2.0.1 --keys keys --node south-0

        geotrain wan probe south.example --keys keys --node east-0 --peer south-0

        geotrain wan probe 10.2.0.1 --insecure --write cluster.yaml --link east,south

        geotrain wan bench cluster.yaml --between east,south --chart bench.svg
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@command.command("serve")
def serve(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen at; only this machine reaches the default.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 takes a free one.")] = _PORT,
    keys: KeysOption = None,
    node: NodeOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Wait for probes and answer them, one at a time, until Ctrl-C.

    The first line on stdout says where it listens. With keys, only nodes of the same job get in. A turn ends in time,
    whatever the client does: round trips within 30 s, a rate within 8 times its seconds and 75 s, 10 minutes at most.

    Examples:

        geotrain wan serve --host 10.2.0.1 --keys keys --node south-0

        geotrain wan serve --insecure --host 10.2.0.1 --port 7470
    """
    from geotrain.wan.server import Server

    server = Server(identity=_identity(keys, node, insecure, "server"), host=host, port=port, tell=_tell)
    if insecure:
        _tell("warning: --insecure: no encryption, and anybody who reaches this port can use it")
    typer.echo("listening at {}:{}".format(*server.address))
    try:
        server.serve()
    except KeyboardInterrupt:
        _tell("stopped")
    finally:
        server.close()


@command.command("probe")
def probe(
    where: Annotated[str, typer.Argument(metavar="HOST[:PORT]", help="Where `geotrain wan serve` listens.")],
    seconds: Annotated[float, typer.Option(metavar="S", help="How long each rate is measured.")] = 0.5,
    keys: KeysOption = None,
    node: NodeOption = None,
    peer: Annotated[str | None, typer.Option(metavar="NAME", help="The server's name, with --keys.")] = None,
    insecure: InsecureOption = False,
    write: Annotated[
        Path | None, typer.Option(metavar="CLUSTER", help="Write rtt, pair_cap and tcp_window into this cluster file.")
    ] = None,
    link: Annotated[
        str | None, typer.Option(metavar="HERE,THERE", help="The two data centers, with --write: this side's first.")
    ] = None,
    chart: ChartOption = None,
    json: JsonOption = False,
) -> None:
    """Measure the path to a server, both ways.

    Round trip, rate over 1, 2, 4, ... connections, and the cap. Connections are doubled until the total grows by less
    than a tenth. That takes about 20 s at 40 ms and loads the path fully meanwhile. Rates are those of our own channel,
    checksums and TLS included: what a trainer will get.

    A cluster file wants `rtt`, `pair_cap` (the most over any number of connections) and `tcp_window` (rate of one
    connection x rtt). --write puts them into the link's entry under `wan.links`, makes one if there is none, and leaves
    the rest of the file as it is, comments too. Directions that differ by more than a tenth get an entry each.

    Examples:

        geotrain wan probe 10.2.0.1 --insecure

        geotrain wan probe south.example:7470 --keys keys --node east-0 --peer south-0 --chart rates.svg

        geotrain wan probe 10.2.0.1 --insecure --write cluster.yaml --link east,south
    """
    from geotrain.errors import InputError
    from geotrain.wan.client import Prober
    from geotrain.wan.talk import MOST_S

    check_writable(chart, inputs=[write])
    if not 0.05 <= seconds <= MOST_S:
        raise InputError(f"--seconds is {seconds:g} and must be 0.05 to {MOST_S:g}")
    if (write is None) != (link is None):
        raise InputError("--write CLUSTER and --link HERE,THERE go together")
    ends = _two("--link", link) if link is not None else ("", "")
    if write is not None:
        _check_ends(write, ends)
    host, port = _address(where)
    if keys is not None and peer is None:
        raise InputError("--keys needs --peer NAME: which node is expected there")
    identity = _identity(keys, node, insecure, "client")
    found = Prober(host, port, identity=identity, peer=peer or "server", seconds=seconds, tell=_tell).probe()

    from geotrain.files import write_text
    from geotrain.reports.wan import probe_json, probe_svg, probe_table

    if chart is not None:
        write_text(chart, probe_svg(found))
    written: list[str] = []
    if write is not None:
        from geotrain.wan.clusterfile import write_link

        written = write_link(write, found, *ends)
    if json:
        print_json({**probe_json(found), "written": written})
        return
    _show(probe_table(found))
    for row in written:
        typer.echo(f"{write}: {row}")


@command.command("bench")
def bench(
    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="Cluster file: whose WAN to build.")],
    between: Annotated[str, typer.Option(metavar="FROM,TO", help="Two data centers of it: sender and receiver.")],
    size: Annotated[str, typer.Option(metavar="SIZE", help="Of a transfer.")] = "33.5 MB",
    count: Annotated[int, typer.Option(metavar="N", min=1, help="Transfers timed, after a few that are not.")] = 7,
    pairs: Annotated[int, typer.Option(metavar="K", min=1, help="Node pairs that pool, if the file has them.")] = 3,
    chart: ChartOption = None,
    json: JsonOption = False,
) -> None:
    """Time transfers of training size on an emulated WAN.

    Over one connection, over many, pooled, and by plain gloo. Builds the two data centers as a testbed (root or user
    namespaces, as `geotrain testbed`), runs a process per node and sends one buffer at a time, timed from the sender's
    call until the receiver has it all. The middle of the transfers is shown, beside what the simulator counts on for
    the same link: bytes / rate + rtt / 2.

    gloo is torch.distributed's send and recv, and is left out where torch is not installed. All nodes and the WAN run
    on this machine's cores: where `CPU` comes near the time, the machine is what was measured.

    Examples:

        geotrain wan bench cluster.yaml --between east,south

        geotrain wan bench cluster.yaml --between east,south --size 8MB --count 20 --pairs 2 --chart bench.svg
    """
    from geotrain.cluster import Cluster
    from geotrain.errors import InputError
    from geotrain.units import SIZE
    from geotrain.wan.bench import Benchmark

    check_writable(chart, inputs=[cluster])
    size_bytes = round(quantity("--size", size, SIZE))
    if not 1 <= size_bytes <= 1 << 30:
        raise InputError(f"--size is {size!r} and must be 1 byte to 1 GiB")
    source, target = _two("--between", between)
    asked = {"size_bytes": size_bytes, "count": count, "pairs": pairs}
    found = Benchmark(Cluster.load(cluster), source, target, **asked, tell=_tell).run()

    from geotrain.files import write_text
    from geotrain.reports.wan import bench_json, bench_svg, bench_table

    if chart is not None:
        write_text(chart, bench_svg(found))
    if json:
        print_json(bench_json(found))
    else:
        _show(bench_table(found))


def _identity(keys: Path | None, node: str | None, insecure: bool, name: str) -> Identity:
    from geotrain.errors import InputError
    from geotrain.transport import Credentials, Identity
    from geotrain.wan.talk import JOB

    if insecure == (keys is not None):
        raise InputError("give either --keys DIR and --node NAME, or --insecure for a private link")
    if keys is None:
        return Identity(job=JOB, node=node or name, insecure=True)
    if node is None:
        raise InputError("--keys needs --node NAME: whose keys to use")
    return Identity(job=JOB, node=node, credentials=Credentials(keys / node))


def _address(where: str) -> tuple[str, int]:
    """host, host:port, or [v6]:port."""
    from geotrain.errors import InputError

    host, colon, port = where.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = where, str(_PORT)
    if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"the server is {where!r} and must be HOST or HOST:PORT")
    return host.strip("[]"), int(port)


def _two(option: str, text: str) -> tuple[str, str]:
    from geotrain.errors import InputError

    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise InputError(f"{option} is {text!r} and must be two data centers with a comma between them")
    return names[0], names[1]


def _check_ends(path: Path, ends: tuple[str, str]) -> None:
    """Before a probe is spent: does the file exist, and has it these data centers?"""
    from geotrain.cluster import Cluster

    cluster = Cluster.load(path)
    for name in ends:
        cluster.datacenter(name)


def _tell(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _show(table: object) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)
