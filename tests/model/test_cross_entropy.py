import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from geotrain.cost.memory import loss_bytes
from geotrain.model import cross_entropy, loss

pytestmark = pytest.mark.slow


def test_losses_of_pieces_add_up():
    logits, targets = torch.randn(2, 8, 11), torch.randint(11, (2, 8))
    pieces = [loss(logits[:, at : at + 3], targets[:, at : at + 3]) for at in range(0, 8, 3)]
    torch.testing.assert_close(sum(pieces), loss(logits, targets))
    assert loss(logits.half(), targets).dtype == torch.float32


@pytest.mark.parametrize("at_a_time", [1, 33, 2**22])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16])
def test_value_and_gradient_are_those_of_torch(precision: torch.dtype, at_a_time: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_A_TIME", at_a_time)
    luck = torch.Generator().manual_seed(1)
    ours = (5 * torch.randn(2, 8, 11, generator=luck)).to(precision).requires_grad_()
    theirs, targets = ours.detach().clone().requires_grad_(), torch.randint(11, (2, 8), generator=luck)
    found, expected = loss(ours, targets) / 16, F.cross_entropy(theirs.flatten(0, 1).float(), targets.flatten())
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [64, 1024], ids=["one-piece", "many-pieces"])
def test_no_more_memory_is_needed_than_is_counted(precision: torch.dtype, tokens: int):
    words = 32000
    logits = torch.zeros(1, tokens, words, dtype=precision, requires_grad=True)
    targets = torch.zeros(1, tokens, dtype=torch.int64)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss(logits, targets).backward()
    events = profiler.profiler.kineto_results.events()
    held = np.cumsum([event.nbytes() for event in events if event.name() == "[memory]"])
    counted = loss_bytes(tokens, words, precision.itemsize)
    assert logits.nbytes < held.max() <= counted - logits.nbytes + 100 * tokens, "a few numbers per token besides"
    assert tokens == 64 or counted < 1.5 * 2 * logits.nbytes
