from pathlib import Path

import pytest
import torch

from geotrain.errors import DoesNotFitError
from geotrain.model import Part, weights
from geotrain.prefill.fitting import fit
from geotrain.training import prefill_bench
from geotrain.training.prefill_bench import PrefillBench, grid, load
from tests.model.tiny import config, filled

pytestmark = pytest.mark.slow


SHAPE = config(max_position_embeddings=512)
CPU = torch.device("cpu")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    weights.save(tmp_path, SHAPE, filled(SHAPE).named_parameters())
    return tmp_path


def test_the_grid_tells_all_coefficients_apart_and_keeps_to_the_longest():
    for longest in (1, 2, 3, 64, 1000, 8192):
        points = grid(longest)
        assert len(set(points)) == len(points)
        assert max(new + cached for new, cached in points) == longest
        assert min(new for new, _ in points) >= 1
    assert fit(grid(1000), [1.0 + new for new, _ in grid(1000)]).unknown == ()


def test_a_model_is_read_and_timed(directory: Path):
    part = load(directory, CPU)
    for name, parameter in filled(SHAPE).named_parameters():
        assert torch.equal(part.get_parameter(name), parameter), name
    timed = list(PrefillBench(part, 512).measure(grid(512), 3))
    assert [point for point, _ in timed] == grid(512) * 3
    found = fit([point for point, _ in timed], [seconds for _, seconds in timed])
    assert 0 < found.time.seconds(4) <= found.time.seconds(512)


def test_what_is_timed_is_the_models_own_answer(directory: Path, monkeypatch: pytest.MonkeyPatch):
    part, answers, whole = load(directory, CPU), list[torch.Tensor](), Part.logits

    def noted(self: Part, x: torch.Tensor) -> torch.Tensor:
        answers.append(whole(self, x))
        return answers[-1]

    monkeypatch.setattr(Part, "logits", noted)
    bench = PrefillBench(part, 512)
    bench.seconds(100, 0)
    bench.seconds(112, 400)
    ids = torch.randint(SHAPE.vocab_size, (1, 512), generator=torch.Generator().manual_seed(0))
    expected = whole(part, part.hidden(ids))[0]
    torch.testing.assert_close(torch.cat(answers)[:, 0], expected[[511, 99, 511]])


def test_a_model_that_does_not_fit_is_not_begun(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefill_bench, "free_bytes", lambda device: 1 << 10)
    with pytest.raises(DoesNotFitError, match=r"the model takes [\d.]+ KiB, and 1 KiB are free on this device$"):
        load(directory, CPU)
