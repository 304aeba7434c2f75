from pathlib import Path

import pytest

from geotrain.reproduction import Claim, Finding
from geotrain.reproduction.verdict import judge

FINDINGS = [Finding(row={"rtt_ms": rtt_ms}, figure="speed", value=value) for rtt_ms, value in ((10, 2.0), (40, 8.0))]


def claim(value: float = 8.0, **fields: object) -> Claim:
    ours = {"figure": "speed"} | fields.pop("ours", {})  # type: ignore[operator]
    content = {"says": "so", "value": value, "source": "us", "trust": "none", "ours": ours, **fields}
    return Claim.parse(content, source=Path("claim.yaml"))


@pytest.mark.parametrize(
    ("asked", "ours", "word"),
    [
        pytest.param(claim(ours={"take": "max"}, within=0.0), 8.0, "holds", id="equal"),
        pytest.param(claim(7.0, ours={"take": "max"}, within=0.1), 8.0, "more", id="more"),
        pytest.param(claim(9.0, ours={"take": "max"}, at_least=True), 8.0, "less", id="not-reached"),
        pytest.param(claim(1.0, ours={"take": "max"}, at_least=True), 8.0, "holds", id="far-exceeded"),
        pytest.param(claim(1.0, ours={"take": "min"}, at_most=True), 2.0, "more", id="above-a-limit"),
        pytest.param(claim(ours={"where": {"rtt_ms": 40}}, within=0.0), 8.0, "holds", id="one-setting"),
        pytest.param(claim(5.0, ours={"take": "median"}, within=0.0), 5.0, "holds", id="median"),
        pytest.param(claim(0.5, ours={"take": "share", "limit": 3.0}, at_least=True), 0.5, "holds", id="share"),
        pytest.param(claim(ours={"where": {"rtt_ms": 99}}, within=0.1), None, "not measured", id="nothing-found"),
    ],
)
def test_a_claim_against_what_was_found(asked, ours, word):
    verdict = judge(asked, FINDINGS)
    assert (verdict.ours, verdict.word) == (ours, word)


def test_the_best_of_several_is_traced_to_the_one_it_was_found_at():
    assert judge(claim(ours={"take": "max"}, within=0.1), FINDINGS).findings == (FINDINGS[1],)


def test_a_claim_never_takes_one_of_several_by_chance():
    with pytest.raises(AssertionError, match="2 findings"):
        judge(claim(within=0.1), FINDINGS)
