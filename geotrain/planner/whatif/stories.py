"""Questions that people ask most often, each with its points and its answer in one sentence."""

import math
from collections.abc import Callable, Mapping, Sequence

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.hints import hint
from geotrain.planner.ask import Ask
from geotrain.planner.use import listed
from geotrain.planner.whatif.exploration import Story
from geotrain.planner.whatif.grid import Plain, Point, Setting
from geotrain.planner.whatif.knee import knee
from geotrain.planner.whatif.outcome import Found, Outcome
from geotrain.planner.whatif.variants import has_limits, with_bandwidth, with_nodes
from geotrain.workload import Job

FRACTIONS = (0.0, 0.05, 0.1, *(tenth / 10 for tenth in range(2, 11)))
HALVINGS = 6
WORTH_IT = 0.01
"""A data center that brings less than this share is not worth its trouble."""


def add_dc(cluster: Cluster, job: Job, ask: Ask) -> Story:
    """The first 1, 2, ... data centers of the file: is the next one worth it?"""
    names = [dc.name for dc in cluster.datacenters]
    _need_two("add-dc", names)
    points = []
    for number in range(1, len(names) + 1):
        changed = with_nodes(cluster, {name: 0 for name in names[number:]})
        text = names[0] if number == 1 else f"+ {names[number - 1]}"
        points.append(_point("first_datacenters", text, number, changed, job, ask))
    outcomes = yield points
    steps = zip(names[1:], outcomes, outcomes[1:], strict=False)
    return f"Data centers in the order of the file: {'; '.join(_worth(*step) for step in steps)}."


def _worth(name: str, before: Outcome, after: Outcome) -> str:
    if not isinstance(after, Found):
        return f"with {name} still nothing fits"
    if not isinstance(before, Found):
        return f"it takes {name} to fit at all"
    gain = after.tokens_per_s / before.tokens_per_s - 1
    if name not in after.datacenters:
        return f"{name} is left out"
    if gain < WORTH_IT:
        return f"{name} brings only {gain:.1%} and is not worth it"
    cost = ""
    if before.cost_per_billion_tokens > 0:
        ratio = after.cost_per_billion_tokens / before.cost_per_billion_tokens
        cost = f" at {ratio:.2f}x the cost per token"
    return f"{name} is worth it, {gain:+.1%} tokens/s{cost}"


def lose_dc(cluster: Cluster, job: Job, ask: Ask) -> Story:
    """Each data center gone in turn."""
    names = [dc.name for dc in cluster.datacenters if dc.nodes]
    _need_two("lose-dc", names, " with nodes")
    gone = [_point("lost_datacenter", name, name, with_nodes(cluster, {name: 0}), job, ask) for name in names]
    whole, *outcomes = yield [_point("lost_datacenter", "none", "", cluster, job, ask), *gone]
    if not isinstance(whole, Found):
        return "Nothing fits even with all data centers."
    lost = {
        name: 1 - outcome.tokens_per_s / whole.tokens_per_s if isinstance(outcome, Found) else math.inf
        for name, outcome in zip(names, outcomes, strict=True)
    }
    worst = max(names, key=lambda name: lost[name])
    if lost[worst] < WORTH_IT:
        return "Any one data center can go without a loss."
    needed = [name for name in names if math.isinf(lost[name])]
    spare = [name for name in names if lost[name] < WORTH_IT]
    said = f"The loss of {worst} hurts most, {lost[worst]:.1%} fewer tokens/s"
    if needed:
        said = f"Without {' or '.join(needed)} nothing fits"
    return f"{said}; {listed(spare)} can go without a loss." if spare else f"{said}."


def fraction(cluster: Cluster, job: Job, ask: Ask) -> Story:
    """The second data center at 0, 5, 10, 20 ... 100% of the first one's nodes; later ones are not used."""
    names = [dc.name for dc in cluster.datacenters]
    _need_two("fraction", names)
    first, second = cluster.datacenters[:2]
    if not first.nodes:
        raise InputError(f"--story fraction needs nodes in {first.name!r}, the first data center of the file")
    points = []
    for share in FRACTIONS:
        nodes = {name: 0 for name in names[2:]} | {second.name: round(share * first.nodes)}
        text = f"{share:.0%} = {nodes[second.name]} node{'s' * (nodes[second.name] != 1)}"
        points.append(_point("fraction", text, share, with_nodes(cluster, nodes), job, ask))
    outcomes = yield points
    used = [isinstance(outcome, Found) and second.name in outcome.datacenters for outcome in outcomes]
    alone, equal = outcomes[0], outcomes[-1]
    gain = ""
    if isinstance(alone, Found) and isinstance(equal, Found):
        gain = f"; one as large as the first brings {equal.tokens_per_s / alone.tokens_per_s - 1:+.1%} tokens/s"
    if not any(used):
        return "A second data center is left out at any size up to the first one's."
    least = used.index(True)
    holes = listed([f"{FRACTIONS[index]:.0%}" for index in range(least, len(used)) if not used[index]] or [""])
    if least == 1:
        but = f", but not at {holes}" if holes else ""
        return f"A second data center is used from {FRACTIONS[1]:.0%} on{but}{gain}."
    too = f", or of {holes}," if holes else ""
    return f"A second data center of {FRACTIONS[least - 1]:.0%} or less{too} is left out{gain}."


def halve(cluster: Cluster, job: Job, ask: Ask) -> Story:
    """WAN bandwidth, per pair and per link, at 1, 1/2, 1/4 ... of the file's."""
    if not has_limits(cluster):
        raise InputError("--story halve needs a pair_cap or capacity in the cluster's wan, where all is unlimited")
    points = []
    for power in range(HALVINGS):
        text = "1" if power == 0 else f"1/{2**power}"
        points.append(_point("wan_bandwidth", text, 0.5**power, with_bandwidth(cluster, 0.5**power), job, ask))
    outcomes = yield points
    whole = outcomes[0]
    if not isinstance(whole, Found):
        return "Nothing fits."
    if whole.across == "none":
        return f"Less bandwidth changes nothing: the best plan stays in {listed(list(whole.datacenters))}."
    left = [o.tokens_per_s / whole.tokens_per_s if isinstance(o, Found) else 0.0 for o in outcomes]
    said = f"Half the bandwidth leaves {left[1]:.1%} of the tokens/s and 1/{2 ** (HALVINGS - 1)} leaves {left[-1]:.1%}"
    for point, outcome in zip(points, outcomes, strict=True):
        if isinstance(outcome, Found) and _way(outcome) != _way(whole):
            return f"{said}; from {point.settings[0].text} on {_said_way(outcome)}."
    return f"{said}; data centers and the way across stay the same."


StoryMaker = Callable[[Cluster, Job, Ask], Story]
STORIES: Mapping[str, StoryMaker] = {
    "add-dc": add_dc,
    "lose-dc": lose_dc,
    "fraction": fraction,
    "halve": halve,
    "knee": knee,
}


def find_story(name: str) -> StoryMaker:
    """The story of that name."""
    if name not in STORIES:
        raise InputError(f"--story {name}: is not a known story: {hint(name, STORIES)}")
    return STORIES[name]


def _point(name: str, text: str, plain: Plain, cluster: Cluster, job: Job, ask: Ask) -> Point:
    return Point(settings=(Setting(name=name, text=text, plain=plain),), cluster=cluster, job=job, ask=ask)


def _need_two(story: str, names: Sequence[str], kind: str = "") -> None:
    if len(names) < 2:
        raise InputError(f"--story {story} needs two data centers{kind}, and the cluster has {len(names)}")


def _way(found: Found) -> tuple[str, frozenset[str]]:
    return found.across, frozenset(found.datacenters)


def _said_way(found: Found) -> str:
    where = listed(list(found.datacenters))
    return f"the best plan stays in {where}" if found.across == "none" else f"it is {found.across} across {where}"
