"""`geotrain testbed`: a cluster on this machine, with a WAN that behaves like the file says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geotrain.cli._output import JsonOption, print_json

if TYPE_CHECKING:
    from geotrain.testbed import Files, Record

command = typer.Typer(rich_markup_mode=None, add_completion=False)

NameOption = Annotated[str, typer.Option(metavar="NAME", help="Which testbed, where there are several.")]
StateOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where testbeds are recorded; /run/geotrain-testbed, or the user's runtime dir."),
]


@command.callback(
    epilog="To begin: geotrain testbed up cluster.yaml && geotrain testbed status", invoke_without_command=True
)
def about(context: typer.Context) -> None:
    """Build a cluster on this machine, with an emulated WAN.

    Every node of the cluster file becomes a network namespace with an address of its own. Between data centers there is
    the file's round trip, rate per pair of nodes, capacity, loss and TCP window; inside, the fabric's rate. TCP is the
    kernel's own. Nothing inside reaches the machine's network, nor the other way round.

    Needs iproute2, and root or user namespaces. The WAN is the kernel's netem where it has that, otherwise a forwarder
    in userspace, good for about 5 to 10 Gbit/s in all.

    Examples:

        geotrain testbed up cluster.yaml --nodes-per-dc 2

        geotrain testbed exec south -- python3 -m http.server 8000

        geotrain testbed exec east --node 1 -- curl http://10.2.0.1:8000/

        geotrain testbed status --json | jq -r '.nodes[].address'

        geotrain testbed down
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@command.command("up")
def up(
    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="Cluster file: what to build.")],
    nodes_per_dc: Annotated[
        int, typer.Option(metavar="N", help="At most so many nodes in each data center, whatever the file has.")
    ] = 4,
    wan: Annotated[
        Literal["auto", "netem", "forwarder"], typer.Option(help="What emulates the WAN; auto: netem if there is one.")
    ] = "auto",
    mtu: Annotated[int, typer.Option(metavar="BYTES", help="Largest packet, on the WAN and inside.")] = 9000,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the random loss; not for netem.")] = 0,
    name: NameOption = "default",
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Build the cluster of the file; it stays until `down`.

    Example: geotrain testbed up cluster.yaml --nodes-per-dc 3 --name three
    """
    from geotrain.cluster import Cluster
    from geotrain.testbed import draw, launch

    files = _files(state, name)
    blueprint = draw(Cluster.load(cluster), nodes_per_dc=nodes_per_dc, mtu=mtu, seed=seed)
    record, _ = launch(files, blueprint, wan=wan, attached=False)
    if json:
        print_json(_facts(record))
        return
    for site in blueprint.sites:
        count = sum(node.dc == site.dc for node in blueprint.nodes)
        of = f" of {site.nodes_in_file}" if count < site.nodes_in_file else ""
        typer.echo(f"{site.dc}: {count}{of} node{'s' if site.nodes_in_file > 1 else ''}, {_addresses(record, site.dc)}")
    typer.echo(f"WAN: {_kind(record)}")
    typer.echo(f"\nnext: geotrain testbed exec{files.options} {blueprint.nodes[0].dc} -- COMMAND")
    typer.echo(f"then: {files.down}")


@command.command("exec")
def execute(
    dc: Annotated[str, typer.Argument(metavar="DC", help="Data center.")],
    arguments: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="What to run, after two dashes.")],
    node: Annotated[int, typer.Option(metavar="N", help="Which of its nodes, from 0.")] = 0,
    name: NameOption = "default",
    state: StateOption = None,
) -> None:
    """Run a command on a node; its exit code is the answer.

    The command finds its node's address in GEOTRAIN_ADDRESS.

    Examples:

        geotrain testbed exec east -- ip route

        geotrain testbed exec east --node 1 -- python3 -c 'import os; print(os.environ["GEOTRAIN_ADDRESS"])'
    """
    from geotrain.testbed import Session

    session = Session(_files(state, name))
    line = session.command(dc, node, arguments)
    os.execvpe(line[0], line, session.environment(dc, node, os.environ))


@command.command("status")
def status(name: NameOption = "default", state: StateOption = None, json: JsonOption = False) -> None:
    """Say what is up, and what the WAN has carried.

    Addresses, processes inside, and per direction what was carried, dropped by a full queue and lost at random.
    Exit code 1 if nothing is up.

    Example: geotrain testbed status --json | jq '.links[] | {from, to, bytes, dropped}'
    """
    from geotrain.testbed import Session

    files = _files(state, name)
    record = files.read()
    if record is None:
        _answer({"name": name, "state": "down"}, f"no testbed {name!r} is up", json=json)
        raise typer.Exit(1)
    session = Session(files)
    facts = _facts(record)
    if facts["state"] != "up":
        how = "cleans up" if facts["state"] == "dead" else "ends it"
        sentence = f"the testbed {name!r} is {facts['state']}; `{files.down}` {how}"
        _answer(facts, sentence, json=json)
        raise typer.Exit(1)
    counted = session.counters()
    for link, counts in zip(facts["links"], counted["ways"] or [], strict=False):
        link.update(counts)
    facts |= {"processes": session.guests(), "strays": counted["strays"], "cpu_s": counted["cpu_s"]}
    if json:
        print_json(facts)
        return
    _show(record, facts)


@command.command("down")
def down(name: NameOption = "default", state: StateOption = None, json: JsonOption = False) -> None:
    """Remove a testbed and end every process in it.

    Whatever state it is in, also after a crash; no error if there is none.

    Example: geotrain testbed down --name three
    """
    from geotrain.testbed import take_down

    record = take_down(_files(state, name))
    facts = {"name": name, "state": "down", "was_up": record is not None}
    _answer(facts, f"the testbed {name!r} is down" if record else f"no testbed {name!r} is up", json=json)


def _files(state: Path | None, name: str) -> Files:
    from geotrain.testbed import Files

    return Files(state, name)


def _answer(facts: dict[str, Any], sentence: str, *, json: bool) -> None:
    if json:
        print_json(facts)
    else:
        typer.echo(sentence)


def _facts(record: Record) -> dict[str, Any]:
    import time

    return {
        "name": record.name,
        "state": record.state,
        "cluster": record.blueprint.cluster,
        "wan": record.kind,
        "congestion_control": record.congestion,
        "rootless": record.rootless,
        "mtu": record.blueprint.mtu,
        "process": record.keeper,
        "age_s": round(time.time() - record.created, 3),
        "nodes": [{"dc": node.dc, "node": node.index, "address": node.address} for node in record.blueprint.nodes],
        "links": [
            {
                "from": way.source,
                "to": way.target,
                "one_way_s": way.delay_s,
                "pair_cap": way.pair_cap,
                "capacity": way.capacity,
                "tcp_window": way.window_bytes,
                "loss": way.loss,
            }
            for way in record.blueprint.ways
        ],
    }


def _kind(record: Record) -> str:
    what = {"netem": "the kernel's netem", "forwarder": "a forwarder in userspace"}.get(record.kind, "unknown")
    rights = ", without root" if record.rootless else ""
    return f"{what}{rights}, TCP {record.congestion}, MTU {record.blueprint.mtu}"


def _addresses(record: Record, dc: str) -> str:
    addresses = [node.address for node in record.blueprint.nodes if node.dc == dc]
    return addresses[0] if len(addresses) == 1 else f"{addresses[0]} to {addresses[-1]}"


def _show(record: Record, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from geotrain.units import format_rate, format_seconds, format_traffic

    typer.echo(f"the testbed {record.name!r} is up since {format_seconds(facts['age_s'])}, process {record.keeper}")
    typer.echo(f"WAN: {_kind(record)}")
    for site in record.blueprint.sites:
        typer.echo(f"{site.dc}: {_addresses(record, site.dc)}")
    typer.echo(f"processes inside: {len(facts['processes'])}\n")
    heads = ("from", "to", "one way", "pair cap", "capacity", "window", "loss", "carried", "dropped", "lost")
    rows = []
    for link in facts["links"]:
        rates = ["-" if link[key] is None else format_rate(link[key]) for key in ("pair_cap", "capacity")]
        window = "-" if link["tcp_window"] is None else format_traffic(link["tcp_window"])
        loss, lost = (f"{link['loss']:g}", str(link.get("lost", "-"))) if link["loss"] else ("-", "-")
        carried = format_traffic(link["bytes"]) if "bytes" in link else "-"
        dropped = str(link.get("dropped", "-"))
        ends = (link["from"], link["to"] + (" (cut)" if link.get("cut") else ""))
        rows.append((*ends, format_seconds(link["one_way_s"]), *rates, window, loss, carried, dropped, lost))
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    # A terminal has room for what there is to say.
    columns = [(head, cells) for head, *cells in zip(heads, *rows, strict=True) if set(cells) != {"-"}]
    for head, _ in columns:
        table.add_column(head, justify="left" if head in ("from", "to") else "right", no_wrap=True)
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row)
    Console(highlight=False).print(table)
