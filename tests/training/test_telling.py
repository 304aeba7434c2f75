from pathlib import Path
from typing import Any

import pytest

from geotrain.seating import Seating
from geotrain.training.control import Control
from geotrain.training.optimizer import Recipe
from geotrain.training.options import Options
from geotrain.training.report import StepReport
from geotrain.training.telling import Telling
from tests.training.alone import train_alone
from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of this package's own sources."""
    return dataset(tmp_path_factory.mktemp("data"))


class Watch:
    last = None

    def __init__(self) -> None:
        self.times: list[tuple[int, float, float]] = []

    def report(self, report: StepReport) -> None:
        self.times.append((report.step, report.step_time_s, report.utilization))

    def close(self) -> None: ...


def telling() -> tuple[Telling, Watch]:
    """Of a process that is alone."""
    decided, watch = plan(["east"]), Watch()
    seating = Seating(decided)
    control = Control(seating, seating.seats[0], {}, "job", 1.0)
    return Telling(decided, Options(dc="east", out=Path("run"), compute="emulated"), control, watch), watch


def words(begin_s: float) -> dict[str, Any]:
    return {"loss": 1.0, "norm2": 4.0, "busy_s": 3.0, "begin_s": begin_s, "wan_bytes": 0}


def test_a_step_told_before_its_update_lasts_until_the_update_is_over():
    one, watch = telling()
    assert one.tell(0, updated=False, **words(10.0)) == 2.0
    one.over(16.0)
    assert watch.times == []
    one.tell(1, updated=False, **words(16.0))
    assert watch.times == [(0, 6.0, 0.5)]
    one.over(20.0)
    one.finish()
    assert watch.times == [(0, 6.0, 0.5), (1, 4.0, 0.75)]


def test_a_step_told_after_its_update_is_reported_at_once():
    one, watch = telling()
    one.over(16.0)
    one.tell(0, updated=True, **words(10.0))
    one.finish()
    assert watch.times == [(0, 6.0, 0.5)]


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_run_that_diverges_ends_on_all_processes_and_saves_nothing_of_it(data: Path, tmp_path: Path, clip: float):
    decided = plan(["east", "south"], job={"model": MODEL | {"layers": 2, "vocab": VOCAB}})
    recipe = Recipe(learning_rate=1e30, warmup_steps=0, clip=clip)
    options = Options(dc="", out=tmp_path, data=data, steps=9, recipe=recipe, checkpoint_every=1)
    endings = train_alone(decided, dict.fromkeys(("east", "south"), options))
    assert [report["step"] for report in endings["east"][0]] == [0]
    for _, error, code in endings.values():
        assert error.startswith("step 1: the loss is ") and "a lower learning rate" in error
        assert code == 1
    assert not (tmp_path / "checkpoints" / "step-00000002").exists()


def test_a_tied_head_counts_in_what_the_wan_has_carried(data: Path, tmp_path: Path):
    model = MODEL | {"layers": 2, "vocab": VOCAB, "tied_embeddings": True}
    decided = plan(["east", "south"], job={"model": model, "microbatches": 1})
    options = Options(dc="", out=tmp_path, data=data, steps=1)
    (report,), error, _ = train_alone(decided, dict.fromkeys(("east", "south"), options))["east"]
    assert error == ""
    swapped = 2 * VOCAB * decided.job.model.hidden * 4
    parcels = 2 * decided.job.microbatch * decided.job.sequence * decided.job.model.hidden * 4
    assert swapped <= report["wan_bytes"] <= swapped + parcels
