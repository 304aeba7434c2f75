"""A plan as the file that `geotrain plan` writes: readable, and with what made it.

No time of day and no machine in it, so that the same inputs give the same bytes.
"""

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import yaml

from geotrain import __version__
from geotrain.errors import InputError
from geotrain.files import read_bytes
from geotrain.plan import MadeBy, Plan

_DECIDE = ("numpy", "numba")
"""Libraries whose version may change a figure."""
_LAST = ("job", "cluster", "made_by")
"""Long and not decided here, so they follow the choices."""


def made_by(command: str, inputs: Sequence[Path]) -> MadeBy:
    """The command, the versions that ran it, and the SHA-256 of each file it read."""
    versions = {"geotrain": __version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in _DECIDE}
    return MadeBy(command=command, versions=versions, inputs={str(path): _sha256(path) for path in inputs})


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def plan_text(plan: Plan, origin: MadeBy, *, heading: str) -> str:
    """The text of the plan's file, which reads back as the same plan; `heading` becomes its first comment."""
    content = plan.change(made_by=origin).dump()
    ordered = {key: value for key, value in content.items() if key not in _LAST}
    ordered |= {key: content[key] for key in _LAST}
    body = yaml.dump(
        ordered, Dumper=_PlainDumper, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True
    )
    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    return f"{comment}{body}"


class _PlainDumper(yaml.SafeDumper):
    """No anchors: an entry that stands twice is written twice, as a person would."""

    def ignore_aliases(self, data: object) -> bool:
        return True
