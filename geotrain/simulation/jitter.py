"""How a schedule stands up to variation: the same lists of actions, played many times with random times.

All pipelines of the cell are played, and as many cells as there are up to a limit, because the all-reduce waits for
the slowest of them. The same seed gives every schedule the same luck, so that schedules can be compared.
"""

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from geotrain.action import Kind
from geotrain.errors import InputError
from geotrain.hints import hint
from geotrain.schedule import Orders
from geotrain.simulation.play import Board, Played, Variation
from geotrain.simulation.problem import Problem
from geotrain.timeline import Floats

Distribution = Literal["normal", "lognormal", "heavy", "straggler"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
_PARTS = ("compute", "wan", "step", "kind", "samples", "seed")
_MOST_PIPELINES = 64
_LEAST_FACTOR = 0.2
_TAIL = 3.0
"""Exponent of the heavy tail: a variance exists, a kurtosis does not."""
_WHOLE_STEP = 1 << 20
"""Whose luck a step's own factor is: no cell's."""
STRETCH = 1e3
"""How many times as long as planned single actions may take: ticks leave room for that."""
_STRAGGLER = 8.0
"""How many spreads the one slow slot of a step is slower than the others."""


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """Random variation of a step. Factors have mean 1, but for the straggler's."""

    compute: float
    """Spread of an action's time, as a share of it."""
    wan: float
    """Spread of a transfer's time: half of the variance lasts for the step, half is each transfer's own."""
    step: float = 0.0
    """Spread of the whole step: one factor for all that happens in it."""
    distribution: Distribution = "lognormal"
    """normal; lognormal; heavy: a power-law tail; straggler: normal, and one slot of each step is slow throughout."""
    samples: int = 200
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """`5%` for compute and WAN alike, or a list like `step=2%,kind=heavy`, as `--jitter` takes it."""
        given = {"compute": text, "wan": text} if "=" not in text else {}
        for part in text.split(",") if "=" in text else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise InputError(f"--jitter has {part!r}, which has no name: in a list it is compute=5%, or wan=5%")
            if key in given:
                raise InputError(f"--jitter has {key!r} twice, which must be there once")
            given[key] = value
        if unknown := sorted(given.keys() - set(_PARTS)):
            raise InputError(f"--jitter has the unknown part {unknown[0]!r}; {hint(unknown[0], _PARTS)}")
        kind = given.get("kind", "lognormal")
        chosen = next((name for name in DISTRIBUTIONS if name == kind), None)
        if chosen is None:
            raise InputError(f"--jitter kind is {kind!r} and must be one of {', '.join(DISTRIBUTIONS)}")
        return cls(
            compute=_share("compute", given.get("compute", "0")),
            wan=_share("wan", given.get("wan", "0")),
            step=_share("step", given.get("step", "0")),
            distribution=chosen,
            samples=_whole("samples", given.get("samples", "200"), least=10),
            seed=_whole("seed", given.get("seed", "0"), least=0),
        )


def _share(key: str, text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError(f"--jitter {key} is {text!r} and must be a share such as '5%' or '0.05'") from None
    if not 0 <= share <= 1:
        raise InputError(f"--jitter {key} is {text!r} and must be between 0 and 100%")
    return share


def _whole(key: str, text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least or int(text) > 1_000_000:
        raise InputError(f"--jitter {key} is {text!r} and must be a whole number from {least} to 1000000")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Step times under variation."""

    jitter: Jitter
    steady_s: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


def spread(played: Played, jitter: Jitter) -> Spread:
    """Replay the schedule `samples` times."""
    problem = Problem(played.problem.plan, stretch=STRETCH)
    board = Board(problem, played.wiring.pooled, alike=False)
    orders = played.orders()
    steps = problem.seconds(np.array([_step(board, orders, jitter, sample) for sample in range(jitter.samples)]))
    p50, p95, p99 = (float(q) for q in np.quantile(steps, (0.5, 0.95, 0.99)))
    return Spread(
        jitter=jitter,
        steady_s=float(played.problem.seconds(np.array(played.step_ticks))),
        mean_s=float(steps.mean()),
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
    )


def _step(board: Board, orders: Orders, jitter: Jitter, sample: int) -> float:
    """One step: every stage's all-reduce waits for the last of all pipelines."""
    problem = board.problem
    cells = max(1, min(problem.plan.cells, _MOST_PIPELINES // board.wiring.num_pipelines))
    work_end = np.zeros(problem.shape.num_stages, dtype=np.int64)
    for cell in range(cells):
        luck = np.random.default_rng([jitter.seed, sample, cell])
        work_end = np.maximum(work_end, board.play(orders, variation(board, jitter, luck)).work_end)
    return int((work_end + problem.finish).max()) * step_factor(jitter, sample)


def step_factor(jitter: Jitter, number: int) -> float:
    """How many times as long everything in the step with that number takes."""
    luck = np.random.default_rng([jitter.seed, number, _WHOLE_STEP])
    return float(_factors(luck, jitter.distribution, jitter.step, ()))


def variation(board: Board, jitter: Jitter, luck: np.random.Generator) -> Variation:
    """How the single actions and transfers of one step vary."""
    shape, pipelines = board.problem.shape, board.wiring.num_pipelines
    places = (pipelines, shape.num_model_stages, shape.num_microbatches)
    actions = _factors(luck, jitter.distribution, jitter.compute, (len(Kind), *places))
    if jitter.distribution == "straggler":
        pipeline, slot = int(luck.integers(pipelines)), int(luck.integers(shape.num_stages))
        actions[:, pipeline, slot :: shape.num_stages] *= 1 + _STRAGGLER * jitter.compute
    half = jitter.wan / 2**0.5
    lasting = _factors(luck, jitter.distribution, half, (2, pipelines, shape.num_model_stages, 1))
    transfers = lasting * _factors(luck, jitter.distribution, half, (2, *places))
    transfers = np.where(over_wan(board.problem), transfers, 1.0)
    return Variation(actions=actions.reshape(len(Kind), -1), transfers=transfers.reshape(2, -1))


def over_wan(problem: Problem) -> NDArray[np.bool_]:
    """[direction, 1, stage, 1]: the stage's result crosses the WAN."""
    crosses = np.zeros((2, 1, problem.shape.num_model_stages, 1), dtype=np.bool_)
    for hop in problem.hops:
        crosses[hop.direction, 0, hop.stage] = hop.own.crosses_wan
    return crosses


def _factors(luck: np.random.Generator, distribution: Distribution, sigma: float, size: tuple[int, ...]) -> Floats:
    if sigma == 0:
        return np.ones(size)
    if distribution == "lognormal":
        width = np.log1p(sigma**2) ** 0.5
        return np.asarray(luck.lognormal(-(width**2) / 2, width, size))
    if distribution == "heavy":
        # A Pareto variable of exponent a has mean a/(a-1) and variance a/((a-1)^2 (a-2)); scaled to spread sigma.
        deviation = (_TAIL / ((_TAIL - 1) ** 2 * (_TAIL - 2))) ** 0.5
        centred = luck.pareto(_TAIL, size) + 1 - _TAIL / (_TAIL - 1)
        return np.asarray(np.maximum(_LEAST_FACTOR, 1 + sigma * centred / deviation))
    return np.asarray(np.maximum(_LEAST_FACTOR, luck.normal(1.0, sigma, size)))
