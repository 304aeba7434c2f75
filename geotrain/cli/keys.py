"""`geotrain keys`: certificates for the nodes of a job."""

from pathlib import Path
from typing import Annotated

import typer

from geotrain.cli._output import JsonOption, print_json


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; made if missing.")],
    nodes: Annotated[str, typer.Option(metavar="NAMES", help="Names of the nodes, with commas between them.")],
    job: Annotated[str, typer.Option(metavar="NAME", help="The job that the keys are for.")] = "job",
    days: Annotated[int, typer.Option(metavar="N", help="How long the nodes' certificates are valid.")] = 90,
    renew: Annotated[bool, typer.Option("--renew", help="Replace the keys of these nodes.")] = False,
    json: JsonOption = False,
) -> None:
    """Make the keys with which the nodes of a job know each other.

    One certificate authority per job, in DIR/ca, and for each node a directory DIR/NODE with its private key, its
    certificate and the authority's. Nodes talk over TLS 1.3 and let in only who has a certificate of the same
    authority.

    Copy DIR/NODE to that node and nothing else; keep DIR/ca at home, for its key can let anybody in.

    Examples:

        geotrain keys keys --nodes east-0,south-0            make them

        geotrain keys keys --nodes west-0                    add a node

        geotrain keys keys --nodes east-0,south-0 --renew    before they expire

    A node reads its keys when it starts: renewed ones count from then on, and old ones stay good until their date.
    The authority lasts five years. If a key was stolen, make new keys for the whole job in another directory.
    """
    from geotrain.errors import InputError
    from geotrain.transport.names import check_name

    try:
        from geotrain.transport.keys import make_keys
    except ImportError:
        raise InputError("keys needs the package cryptography: pip install 'geotrain[wan]'") from None
    names = [name.strip() for name in nodes.split(",")]
    try:
        check_name(job, "job:")
    except ValueError as error:
        raise InputError(str(error)) from None
    made = make_keys(directory, job=job, nodes=names, days=days, renew=renew)
    if json:
        rows = [
            {
                "node": keys.node,
                "directory": str(keys.directory),
                "action": keys.action,
                "valid_until": keys.valid_until.isoformat(),
            }
            for keys in made
        ]
        print_json({"job": job, "authority": str(directory / "ca"), "nodes": rows})
        return
    width = max(len(str(keys.directory)) for keys in made)
    for keys in made:
        typer.echo(f"{keys.action:<8}{keys.directory!s:<{width}}  valid until {keys.valid_until:%Y-%m-%d}")
    typer.echo(f"\nnext: copy each directory to its node; keep {directory / 'ca'} at home")
