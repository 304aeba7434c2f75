"""The page that tells of limits says what they are."""

from pathlib import Path

import pytest

import geotrain
from geotrain.serving import rendering
from geotrain.serving.http import access_log, auth, door, limits, quotas, readers, schemas

PAGE = Path(geotrain.__file__).parent.parent / "docs" / "serving.md"
ROWS = {
    cells[0].strip(): cells[1].strip()
    for line in PAGE.read_text().partition("## Limits")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and (cells := line.strip("|").split("|"))
}
DEFAULT = limits.Limits()


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("connections at the same time", f"{DEFAULT.max_connections:,}; "),
        ("connections at the same time", f"less {limits._OTHER_FILES}"),
        ("those of one address, or of one IPv6 /64", "a quarter of all"),
        ("a TLS handshake", f"{DEFAULT.head_s:g} s"),
        ("head of a request", f"{DEFAULT.max_head_bytes >> 10} KiB, {DEFAULT.max_headers} headers"),
        ("`access.jsonl`", f"{access_log.MOST_BYTES >> 20} MiB, and as much"),
        ("time for a head", f"{DEFAULT.head_s:g} s"),
        ("a connection without a request after its first", f"{DEFAULT.idle_s:g} s"),
        ("body", f"{DEFAULT.max_body_bytes >> 20} MiB"),
        ("body on a path that needs no key", f"{door._STRANGER_BYTES:,} bytes"),
        ("time for a body", f"{DEFAULT.body_s:g} s"),
        ("bodies and tokens of all requests under way", f"{DEFAULT.max_held_bytes >> 20} MiB, half"),
        ("a request with its answer", f"{DEFAULT.deadline_s:g} s"),
        (
            "lists: prompts, messages, parts of a message, stop strings",
            f"{schemas.MAX_PROMPTS}, {schemas.MAX_MESSAGES:,}, {schemas.MAX_PARTS:,}, {schemas.MAX_STOPS}",
        ),
        ("a stop string; names of model and user", f"{schemas.MAX_NAME} characters"),
        ("requests of a tenant under way", str(auth._MOST_REQUESTS)),
        (
            "reading a request: JSON, chat template, tokens",
            f"{readers.LIMIT_S:g} s of a CPU and {rendering.MEMORY_BYTES >> 30} GiB",
        ),
        ("requests that are read at the same time", f"{readers.NUMBER}, of one tenant {readers.NUMBER - 1}"),
    ],
)
def test_the_page_has_the_limits_that_are_in_force(what: str, limit: str):
    assert limit in ROWS[what]


def test_the_page_has_how_much_of_a_rate_may_come_at_once():
    assert any(what.endswith(f"those of {quotas._BURST_S:g} s at once") for what in ROWS)
