"""One set of stories for all kinds of workers."""

import importlib.util
import logging
import multiprocessing
import secrets
from collections.abc import Iterator

import pytest

from geotrain.errors import InputError, RunError
from geotrain.planner import Ask
from geotrain.planner.whatif import InProcess, Processes, Ray, Workers, parse_axis, plan_for
from geotrain.planner.whatif.grid import grid
from tests.planner.whatif.tasks import (
    cluster,
    dies_at_the_end,
    fails_at_three,
    interrupted_at_three,
    job,
    square,
)

pytestmark = pytest.mark.slow


HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install 'geotrain[ray]'")
# Ray leaves sockets and threads of its own behind, which is not for us to judge.
ray_warnings = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]
KINDS = [
    pytest.param(InProcess, id="in-process"),
    pytest.param(lambda: Processes(2), id="processes"),
    pytest.param(Ray, id="ray", marks=[needs_ray, *ray_warnings]),
]


@pytest.fixture(scope="module", autouse=True)
def token() -> Iterator[None]:
    """Who does not know it cannot use the Ray cluster that is started here; Ray reads it when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_urlsafe())
        yield


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_no_ray_cluster_is_started_whose_ports_run_what_they_are_sent(monkeypatch: pytest.MonkeyPatch):
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(InputError, match=r"^--on ray finds no Ray cluster: name one in RAY_ADDRESS"):
        list(Ray().map(square, range(3)))
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def running_ray() -> Iterator[None]:
    """One start for all tests."""
    import ray

    ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture(params=KINDS)
def workers(request: pytest.FixtureRequest) -> Workers:
    if request.param is Ray:
        request.getfixturevalue("running_ray")
    made: Workers = request.param()
    return made


def test_every_item_is_done_once(workers: Workers):
    assert sorted(workers.map(square, range(10))) == [(number, number * number) for number in range(10)]
    assert multiprocessing.active_children() == []


def test_one_that_fails_takes_no_other_with_it(workers: Workers):
    done = []
    with pytest.raises(ZeroDivisionError):
        for index, _ in workers.map(fails_at_three, range(6)):
            done.append(index)
    assert sorted(done) == [0, 1, 2, 4, 5]


def test_leaving_early_ends_the_work(workers: Workers):
    results = workers.map(square, range(100))
    next(iter(results))
    results.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


def test_plans_are_the_same_whoever_makes_them(workers: Workers):
    base, work = cluster(6, 6), job()
    points = grid(base, work, [parse_axis("wan.default.pair_cap=1,10Gbit/s", base, work)], Ask())
    assert dict(workers.map(plan_for, points)) == {index: plan_for(point) for index, point in enumerate(points)}


@pytest.mark.parametrize("workers", [pytest.param(lambda: Processes(1), id="processes"), KINDS[2]], indirect=True)
def test_a_worker_that_dies_is_one_sentence_after_what_is_done(workers: Workers):
    done = []
    with pytest.raises(RunError, match=r"^a (worker process died|Ray worker failed): \w"):
        for index, _ in workers.map(dies_at_the_end, range(10)):
            done.append(index)
    assert sorted(done) == list(range(9))


def test_ctrl_c_goes_through_at_once():
    done = []
    with pytest.raises(KeyboardInterrupt):
        for index, _ in InProcess().map(interrupted_at_three, range(10)):
            done.append(index)
    assert done == [0, 1, 2]


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_the_sentence_says_how_to_get_it():
    with pytest.raises(InputError, match=r"^--on ray needs Ray: pip install 'geotrain\[ray\]'$"):
        Ray()
