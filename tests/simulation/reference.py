"""A slow, exact simulator of one pipelined training step: the truth the fast kernel is tested against.

One loop walks through every instant at which anything happens. At each instant it first takes in all that
happens then (ends of actions, arrivals), and only then lets every idle slot decide. All times are Fractions.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

POLICIES = ("gpipe", "1f1b", "varuna")
Time = Fraction | int
Slot = tuple[int, int]  # pipeline, stage
Action = tuple[str, int]  # kind 'F' or 'B', microbatch


@dataclass(frozen=True)
class Case:
    """One step: per-stage times and caps, per-boundary hops, M microbatches on each of K alike pipelines."""

    forward: tuple[Time, ...]
    backward: tuple[Time, ...]
    hop_occupancy: tuple[Time, ...]
    hop_latency: tuple[Time, ...]
    cap: tuple[int, ...]
    M: int
    K: int = 1

    def __post_init__(self):
        """Refuses a float, a wrong length, an empty action or a cap under which nothing can run."""
        for name in ("forward", "backward", "hop_occupancy", "hop_latency", "cap"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        actions, hops = self.forward + self.backward, self.hop_occupancy + self.hop_latency
        if not all(isinstance(time, (int, Fraction)) for time in actions + hops):
            raise TypeError("times must be Fractions (or ints), never floats")
        if not self.forward or not len(self.forward) == len(self.backward) == len(self.cap):
            raise ValueError("forward, backward and cap need one entry per stage")
        if not len(self.hop_occupancy) == len(self.hop_latency) == self.P - 1:
            raise ValueError("hop_occupancy and hop_latency need one entry per boundary")
        if min(actions) <= 0 or min(hops, default=0) < 0 or min(self.cap) < 1 or self.M < 1 or self.K < 1:
            raise ValueError("actions must last, hops must not be negative, and cap, M, K must be at least 1")

    @property
    def P(self):
        """The number of stages."""
        return len(self.forward)


class Span(NamedTuple):
    """One action on one slot; kind is 'F' or 'B'."""

    pipeline: int
    stage: int
    kind: str
    microbatch: int
    start: Fraction
    end: Fraction


class Transfer(NamedTuple):
    """One transfer over a boundary; it holds its channel from start to end and is received at arrive."""

    pipeline: int
    boundary: int
    direction: str
    microbatch: int
    start: Fraction
    end: Fraction
    arrive: Fraction


class Result(NamedTuple):
    """The step time with the whole timeline, each list sorted by its fields from left to right."""

    step_time: Fraction
    spans: list[Span]
    transfers: list[Transfer]


def gpipe_order(case, stage):
    """F0..F(M-1), then B(M-1)..B0; the same on every stage."""
    return [("F", m) for m in range(case.M)] + [("B", m) for m in reversed(range(case.M))]


def warmup(case, stage):
    """How many forwards 1F1B plays on this stage before it starts to alternate."""
    own = min(case.P - 1 - stage, case.M, case.cap[stage] - 1)
    return own if stage == 0 else min(own, warmup(case, stage - 1))


def one_f_one_b_order(case, stage):
    """Warm-up forwards, then (F w+i, B i) until the forwards run out, then the backwards that are left."""
    w = warmup(case, stage)
    order = [("F", m) for m in range(w)]
    for i in range(case.M - w):
        order += [("F", w + i), ("B", i)]
    return order + [("B", m) for m in range(case.M - w, case.M)]


def choose_in_order(order, done, ready):
    """The next action of a fixed order if its input is there, else None."""
    following = order[len(done)] if len(done) < len(order) else None
    return following if following in ready else None


def choose_varuna(cap, done, ready):
    """The lowest ready backward, else the next forward if its input is there and the cap leaves room, else None."""
    backwards = [m for kind, m in ready if kind == "B" and ("B", m) not in done]
    if backwards:
        return "B", min(backwards)
    forwards_done = sum(kind == "F" for kind, _ in done)
    backwards_done = sum(kind == "B" for kind, _ in done)
    next_forward = ("F", forwards_done)
    return next_forward if next_forward in ready and forwards_done - backwards_done < cap else None


def simulate(case, policy):
    """Plays one step of all K pipelines under the policy and returns its Result."""
    if policy not in POLICIES:
        raise ValueError(f"unknown policy {policy!r}")
    order_of = {"gpipe": gpipe_order, "1f1b": one_f_one_b_order}.get(policy)
    slots = [(k, s) for k in range(case.K) for s in range(case.P)]
    orders = {(k, s): order_of(case, s) for k, s in slots} if order_of else {}
    done: dict[Slot, list[Action]] = {slot: [] for slot in slots}
    running: dict[Slot, Span] = {}
    channel_free: dict[tuple[int, int, str], Fraction] = {}  # when the last transfer sent on a channel leaves it
    input_at: dict[Slot, dict[Action, Fraction]] = {slot: {} for slot in slots}  # when an action's input is there
    for k in range(case.K):
        input_at[k, 0] = {("F", m): Fraction(0) for m in range(case.M)}
    spans, transfers = [], []

    def send(k, boundary, direction, m, now):
        """Queues a transfer behind those sent before it on its channel and returns its arrival."""
        start = max(now, channel_free.get((k, boundary, direction), now))
        end = start + case.hop_occupancy[boundary]
        arrive = end + case.hop_latency[boundary]
        channel_free[k, boundary, direction] = end
        transfers.append(Transfer(k, boundary, direction, m, start, end, arrive))
        return arrive

    now = Fraction(0)
    while True:
        # 1. Take in every action that ends now: free its slot and pass its result on.
        for slot in [slot for slot in slots if slot in running and running[slot].end == now]:
            k, s, kind, m, _, _ = running.pop(slot)
            done[slot].append((kind, m))
            if kind == "F" and s == case.P - 1:
                input_at[k, s]["B", m] = now
            elif kind == "F":
                input_at[k, s + 1]["F", m] = send(k, s, "forward", m, now)
            elif s > 0:
                input_at[k, s - 1]["B", m] = send(k, s - 1, "backward", m, now)

        # 2. Every idle slot decides, knowing all inputs that have arrived up to and including now.
        for k, s in slots:
            if (k, s) in running:
                continue
            ready = {action for action, time in input_at[k, s].items() if time <= now}
            if policy == "varuna":
                action = choose_varuna(case.cap[s], done[k, s], ready)
            else:
                action = choose_in_order(orders[k, s], done[k, s], ready)
            if action is not None:
                kind, m = action
                end = now + Fraction(case.forward[s] if kind == "F" else case.backward[s])
                running[k, s] = Span(k, s, kind, m, now, end)
                spans.append(running[k, s])

        # 3. Go to the next instant at which an action ends or an input arrives.
        arrivals = [time for slot in slots for time in input_at[slot].values() if time > now]
        ends = [span.end for span in running.values()]
        if not arrivals + ends:
            break
        now = min(arrivals + ends)

    if len(spans) != case.K * case.P * case.M * 2:
        raise RuntimeError(f"deadlock under {policy} at {now}: {case}")
    return Result(max(span.end for span in spans if span.kind == "B"), sorted(spans), sorted(transfers))
