"""Sanity of the reference simulator: tiny cases worked out by hand, and a second method for the fixed orders."""

import random
from fractions import Fraction
from itertools import pairwise

import pytest

from tests.simulation.reference import POLICIES, Case, gpipe_order, one_f_one_b_order, simulate


def uniform(P, M, F=1, B=2, occupancy=None, latency=None, cap=None, K=1):
    """A case with alike stages; occupancy and latency map a boundary to its cost (others 0); no cap: a loose one."""
    occupancy, latency = occupancy or {}, latency or {}
    return Case(
        forward=(Fraction(F),) * P,
        backward=(Fraction(B),) * P,
        hop_occupancy=tuple(Fraction(occupancy.get(b, 0)) for b in range(P - 1)),
        hop_latency=tuple(Fraction(latency.get(b, 0)) for b in range(P - 1)),
        cap=(cap or M + P,) * P,
        M=M,
        K=K,
    )


def random_case(rng, K=1):
    """A small case with uneven stages and hops on a coarse grid, so that true ties are common."""
    P = rng.randint(1, 5)

    def times(n, low):
        return tuple(Fraction(rng.randint(low, 6), rng.choice((1, 2, 3))) * rng.choice((1, 1, 4)) for _ in range(n))

    loose = rng.random() < 0.5
    cap = tuple(9 if loose else rng.randint(1, 6) for _ in range(P))
    return Case(times(P, 1), times(P, 1), times(P - 1, 0), times(P - 1, 0), cap, rng.randint(1, 7), K)


def timeline(result, stage, pipeline=0):
    """What one slot plays, in time order: 'F0@start'."""
    spans = sorted((s for s in result.spans if (s.pipeline, s.stage) == (pipeline, stage)), key=lambda s: s.start)
    return " ".join(f"{s.kind}{s.microbatch}@{s.start}" for s in spans)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("gpipe", "F0@0 F1@1 F2@2 B2@3 B1@5 B0@7"),
        ("1f1b", "F0@0 B0@1 F1@3 B1@4 F2@6 B2@7"),
        ("varuna", "F0@0 B0@1 F1@3 B1@4 F2@6 B2@7"),
    ],
)
def test_one_stage(policy, expected):
    # Nothing to wait for: 3 * (1 + 2) = 9, only the order differs.
    result = simulate(uniform(P=1, M=3), policy)
    assert result.step_time == 9
    assert timeline(result, 0) == expected
    assert result.transfers == []


@pytest.mark.parametrize("policy", POLICIES)
def test_two_stages_one_microbatch(policy):
    # F 0-1 | out 1-4, arrives 4+1/2 | F to 11/2, B to 15/2 | out 15/2-21/2, arrives 11 | B 11-13.
    result = simulate(uniform(P=2, M=1, occupancy={0: 3}, latency={0: Fraction(1, 2)}), policy)
    assert result.step_time == 13
    assert result.spans == [
        (0, 0, "B", 0, 11, 13),
        (0, 0, "F", 0, 0, 1),
        (0, 1, "B", 0, Fraction(11, 2), Fraction(15, 2)),
        (0, 1, "F", 0, Fraction(9, 2), Fraction(11, 2)),
    ]
    assert result.transfers == [
        (0, 0, "backward", 0, Fraction(15, 2), Fraction(21, 2), 11),
        (0, 0, "forward", 0, 1, 4, Fraction(9, 2)),
    ]


def test_transfers_queue_for_occupancy_but_not_for_latency():
    # Stage 0 sends at 1, 2, 3. Occupancy 3: they leave at 1, 4, 7. Latency 3: they leave at once.
    queued = simulate(uniform(P=2, M=3, occupancy={0: 3}), "gpipe").transfers
    assert [(t.start, t.arrive) for t in queued if t.direction == "forward"] == [(1, 4), (4, 7), (7, 10)]
    flowing = simulate(uniform(P=2, M=3, latency={0: 3}), "gpipe").transfers
    assert [(t.start, t.arrive) for t in flowing if t.direction == "forward"] == [(1, 4), (2, 5), (3, 6)]


@pytest.mark.parametrize("M", [1, 2, 3, 4, 5, 8, 16])
def test_no_hops_fill_and_drain(M):
    # Fill (P-1) * F, then M * (F + B) on the last stage, then drain (P-1) * B; the same for GPipe and 1F1B.
    case = uniform(P=4, M=M)
    assert simulate(case, "1f1b").step_time == (M + 3) * 3
    assert simulate(case, "gpipe").step_time == (M + 3) * 3


def test_1f1b_orders():
    case = uniform(P=4, M=5)
    flat = ["".join(f"{kind}{m}" for kind, m in one_f_one_b_order(case, s)) for s in range(4)]
    assert flat == ["F0F1F2F3B0F4B1B2B3B4", "F0F1F2B0F3B1F4B2B3B4", "F0F1B0F2B1F3B2F4B3B4", "F0B0F1B1F2B2F3B3F4B4"]
    # Fewer microbatches than warm-up: all forwards first.
    assert one_f_one_b_order(uniform(P=4, M=2), 0) == [("F", 0), ("F", 1), ("B", 0), ("B", 1)]
    # Caps 4, 2, 4, 4 give warm-ups 3, 1, 1, 0: the second stage's cap also holds the third back.
    capped = Case((1,) * 4, (2,) * 4, (0,) * 3, (0,) * 3, (4, 2, 4, 4), 5)
    assert [one_f_one_b_order(capped, s).index(("B", 0)) - 1 for s in range(4)] == [3, 1, 1, 0]


ONE_HOP_TABLE = [(1, 73, 73), (2, 89, 89), (3, 105, 105), (4, 121, 123), (5, 137, 141), (10, 217, 231)]


# P=4, F=1, B=2, M=16, a hop of cost c at boundary 1. 1F1B ties the stages 1 and 2 in a ring: end of B(i) on stage 2,
# hop c, B(i) on stage 1 (2), F(i+3) (1), hop c, F(i+3) on stage 2 (1), then B(i+2) there (2): 6 + 2c per two
# microbatches. With E(i) the end of B(i) on stage 2, E(14) = E(0) + 7 * (6 + 2c). After it, F15 having ended on stage 2
# at E(14)-2, stage 3 plays F15 B15 until E(14)+1 and stage 2 B15 until E(14)+3; then one hop and 2 + 2 on stages 1, 0.
# Latency: F0 reaches stage 2 at 2+c, stage 3 ends B0 at 6+c, E(0) = 8+c,
#   step = 8 + c + 42 + 14c + 3 + c + 4 = 57 + 16c.
# Occupancy, c <= 3: the queueing below costs nothing (2+2c+3 <= 8+c, and c <= 3), the same.
# Occupancy, c > 3: F1 is sent behind F0 and reaches stage 2 at 2+2c, where B0 comes after it: E(0) = 5+2c. At the end
#   the gradient of 15 waits for that of 14, sent at E(14), and leaves at E(14)+c instead of E(14)+3:
#   step = 5 + 2c + 42 + 14c + c + c + 4 = 51 + 18c.
@pytest.mark.parametrize(("c", "as_latency", "as_occupancy"), ONE_HOP_TABLE)
def test_one_hop_table(c, as_latency, as_occupancy):
    assert simulate(uniform(P=4, M=16, latency={1: c}), "1f1b").step_time == as_latency == 57 + 16 * c
    assert simulate(uniform(P=4, M=16, occupancy={1: c}), "1f1b").step_time == as_occupancy
    assert as_occupancy == (57 + 16 * c if c <= 3 else 51 + 18 * c)


def test_varuna_by_hand():
    # P=2, M=3, F=1, B=2, latency 1, no binding cap. Stage 0: F0 F1 F2 at 0 1 2, received at 2 3 4.
    # Stage 1: F0@2; at 3 both B0 and F1 are ready and the backward wins: B0@3 F1@5 B1@6 F2@8 B2@9, sent at 5 8 11.
    # Stage 0: B0@6 (ends 8), B1@9 (ends 11), B2@12, ends 14.
    result = simulate(uniform(P=2, M=3, latency={0: 1}), "varuna")
    assert timeline(result, 1) == "F0@2 B0@3 F1@5 B1@6 F2@8 B2@9"
    assert timeline(result, 0) == "F0@0 F1@1 F2@2 B0@6 B1@9 B2@12"
    assert result.step_time == 14


def test_varuna_takes_the_lowest_of_several_backwards():
    # P=2, M=5, F=1 and 1, B=9 and 1, no hop. Stage 1: F0@1 B0@2 F1@3 B1@4 F2@5 B2@6 and then waits for F3, while
    # stage 0 plays B0 from 3 to 12. At 12 it finds B1 and B2 (and F3): B1@12 B2@21, only then F3@30 F4@31.
    # Stage 1: F3@31 B3@32, so B3@33 on stage 0 after an idle instant from 32; F4@33 B4@34; B4@42 ends at 51.
    result = simulate(Case((1, 1), (9, 1), (0,), (0,), (5, 5), 5), "varuna")
    assert timeline(result, 0) == "F0@0 F1@1 F2@2 B0@3 B1@12 B2@21 F3@30 F4@31 B3@33 B4@42"
    assert timeline(result, 1) == "F0@1 B0@2 F1@3 B1@4 F2@5 B2@6 F3@31 B3@32 F4@33 B4@34"
    assert result.step_time == 51


def test_varuna_cap_holds_forwards_back():
    # The same with cap 1: each microbatch goes round alone: F 1, hop 1, F 1, B 2, hop 1, B 2 = 8 each.
    result = simulate(uniform(P=2, M=3, latency={0: 1}, cap=1), "varuna")
    assert timeline(result, 0) == "F0@0 B0@6 F1@8 B1@14 F2@16 B2@22"
    assert result.step_time == 24


def test_varuna_sees_an_arrival_at_the_very_instant_it_decides():
    # P=2, M=5, no hop, F=1, B=2: stage 1 plays F0@1 B0@2, ends at 4, just as stage 0 ends F3: B0 before F4 there.
    result = simulate(uniform(P=2, M=5), "varuna")
    assert timeline(result, 0) == "F0@0 F1@1 F2@2 F3@3 B0@4 F4@6 B1@7 B2@10 B3@13 B4@16"
    assert result.step_time == 18
    # All times a third: the ties stay ties, so the same timeline a third as long.
    third = simulate(uniform(P=2, M=5, F=Fraction(1, 3), B=Fraction(2, 3)), "varuna")
    assert [(s[:4], s.start * 3) for s in third.spans] == [(s[:4], s.start) for s in result.spans]


def fixpoint(case, order_of):
    """Second method for the fixed orders: raises all starts and ends to the least times their dependencies allow."""
    orders = [order_of(case, s) for s in range(case.P)]
    start = {(s, *action): Fraction(0) for s in range(case.P) for action in orders[s]}
    leave: dict[tuple[int, str, int], Fraction] = {}

    def end(s, kind, m):
        return start[s, kind, m] + (case.forward[s] if kind == "F" else case.backward[s])

    while True:
        before = dict(start), dict(leave)
        for s, order in enumerate(orders):
            previous_end, previous_leave = Fraction(0), {"F": Fraction(0), "B": Fraction(0)}
            for kind, m in order:
                source = s - 1 if kind == "F" else s + 1
                if kind == "B" and s == case.P - 1:
                    ready = end(s, "F", m)
                elif source < 0:
                    ready = Fraction(0)
                else:
                    b = min(s, source)
                    ready = leave.get((source, kind, m), Fraction(0)) + case.hop_occupancy[b] + case.hop_latency[b]
                start[s, kind, m] = max(previous_end, ready)
                previous_end = end(s, kind, m)
                if 0 <= (target := s + 1 if kind == "F" else s - 1) < case.P:
                    leave[s, kind, m] = max(previous_end, previous_leave[kind])
                    previous_leave[kind] = leave[s, kind, m] + case.hop_occupancy[min(s, target)]
        if (start, leave) == before:
            return start, leave


@pytest.mark.parametrize(("policy", "order_of"), [("gpipe", gpipe_order), ("1f1b", one_f_one_b_order)])
def test_fixed_orders_agree_with_the_fixpoint(policy, order_of):
    rng = random.Random(1)
    for _ in range(100):
        case = random_case(rng)
        result = simulate(case, policy)
        start, leave = fixpoint(case, order_of)
        assert {(s.stage, s.kind, s.microbatch): s.start for s in result.spans} == start
        sent = {
            (t.boundary, "F", t.microbatch)
            if t.direction == "forward"
            else (t.boundary + 1, "B", t.microbatch): t.start
            for t in result.transfers
        }
        assert sent == leave


def test_varuna_on_one_stage_is_1f1b():
    rng = random.Random(2)
    for M in range(1, 8):
        case = Case((Fraction(rng.randint(1, 9), 3),), (Fraction(rng.randint(1, 9), 3),), (), (), (M,), M)
        assert simulate(case, "varuna") == simulate(case, "1f1b")
        assert simulate(case, "varuna").step_time == M * (case.forward[0] + case.backward[0])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_timeline_obeys_the_rules(policy):
    rng = random.Random(3)
    for _ in range(100):
        case = random_case(rng)
        result = simulate(case, policy)
        span = {(s.stage, s.kind, s.microbatch): s for s in result.spans}
        hop = {(t.boundary, t.direction, t.microbatch): t for t in result.transfers}
        assert len(span) == len(result.spans) == 2 * case.P * case.M
        assert len(hop) == len(result.transfers) == 2 * (case.P - 1) * case.M
        for stage in range(case.P):
            own = sorted((s for s in result.spans if s.stage == stage), key=lambda s: s.start)
            assert all(a.end <= b.start for a, b in pairwise(own))
            for m in range(case.M):
                forward, backward = span[stage, "F", m], span[stage, "B", m]
                assert forward.end - forward.start == case.forward[stage]
                assert backward.end - backward.start == case.backward[stage]
                assert forward.end <= backward.start
                if stage > 0:
                    assert span[stage - 1, "F", m].end <= hop[stage - 1, "forward", m].start
                    assert hop[stage - 1, "forward", m].arrive <= forward.start
                    assert backward.end <= hop[stage - 1, "backward", m].start
                    assert hop[stage - 1, "backward", m].arrive <= span[stage - 1, "B", m].start
            if policy != "gpipe":
                for s in own:
                    flying = [
                        m for m in range(case.M) if span[stage, "F", m].start <= s.start < span[stage, "B", m].end
                    ]
                    assert len(flying) <= case.cap[stage]
        for boundary in range(case.P - 1):
            for direction in ("forward", "backward"):
                line = sorted(
                    (t for t in result.transfers if (t.boundary, t.direction) == (boundary, direction)),
                    key=lambda t: (t.start, t.end, t.arrive),
                )
                assert all(t.end - t.start == case.hop_occupancy[boundary] for t in line)
                assert all(t.arrive - t.end == case.hop_latency[boundary] for t in line)
                assert all(a.end <= b.start for a, b in pairwise(line))


def test_varuna_never_idles_with_something_to_do():
    # Checked on the finished timeline: each action starts at the end of the one before it, or when its input arrives,
    # or (a forward the cap held back) at the end of a backward, which is again the end of the one before it.
    rng = random.Random(4)
    for _ in range(100):
        case = random_case(rng)
        result = simulate(case, "varuna")
        arrive = {(t.boundary, t.direction, t.microbatch): t.arrive for t in result.transfers}
        for stage in range(case.P):
            previous_end = Fraction(0)
            for s in sorted((s for s in result.spans if s.stage == stage), key=lambda s: s.start):
                key = (stage - 1, "forward", s.microbatch) if s.kind == "F" else (stage, "backward", s.microbatch)
                assert s.start == max(previous_end, arrive.get(key, Fraction(0)))
                waiting = [m for (b, d, m), at in arrive.items() if (b, d) == (stage, "backward") and at <= s.start]
                unplayed = [t for t in result.spans if t[1:3] == (stage, "B") and t.start > s.start]
                if s.start > previous_end:  # idle until now: the next forward had not arrived, or the cap was full
                    started = [t.microbatch for t in result.spans if t[1:3] == (stage, "F") and t.start < s.start]
                    ended = [t.microbatch for t in result.spans if t[1:3] == (stage, "B") and t.end < s.start]
                    full = len(started) - len(ended) == case.cap[stage]
                    following = arrive.get((stage - 1, "forward", len(started)), Fraction(0))
                    assert full or len(started) == case.M or following >= s.start
                if s.kind == "F":
                    assert not [t for t in unplayed if t.microbatch in waiting]
                else:
                    assert not [t for t in unplayed if t.microbatch in waiting and t.microbatch < s.microbatch]
                previous_end = s.end


@pytest.mark.parametrize("policy", POLICIES)
def test_pipelines_are_independent(policy):
    rng = random.Random(5)
    for _ in range(20):
        many = random_case(rng, K=3)
        alone = Case(**{**many.__dict__, "K": 1})
        one, three = simulate(alone, policy), simulate(many, policy)
        assert three.step_time == one.step_time
        assert three.spans == [s._replace(pipeline=k) for k in range(3) for s in one.spans]
        assert three.transfers == [t._replace(pipeline=k) for k in range(3) for t in one.transfers]


def test_floats_are_refused():
    with pytest.raises(TypeError):
        Case((1.0,), (2,), (), (), (1,), 1)  # type: ignore[arg-type]
