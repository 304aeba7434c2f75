"""Which steps there are, which one all resume from, which ones may go."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.training.checkpoint import StepId, agree, common, prune, steps
from geotrain.training.checkpoint.steps import doomed
from tests.training.checkpoint.states import cut, directories, position, save, saver, trained

NUMBERS = st.frozensets(st.integers(0, 30))
STEPS = st.lists(st.builds(StepId, st.integers(0, 9), st.sampled_from("ab")), unique=True)


@given(present=NUMBERS, complete=NUMBERS, keep=st.integers(1, 5))
def test_the_last_complete_steps_and_whatever_is_newer_always_stay(present, complete, keep):
    gone = doomed(present, complete=complete, keep=keep)
    last = sorted(complete)[-keep:]
    assert present - gone == {step for step in present if step in last or not last or step > last[-1]}


@given(lists=st.lists(STEPS, min_size=1, max_size=4))
def test_a_common_step_is_one_that_every_process_has(lists):
    assert common(lists) == sorted(step for step in lists[0] if all(step in one for one in lists))
    # Also when they come as JSON.
    assert common(json.loads(json.dumps(lists))) == common(lists)


@given(lists=st.lists(STEPS, min_size=1, max_size=4), data=st.data())
def test_processes_agree_on_the_newest_step_that_is_good_for_all(lists, data):
    bad = [data.draw(st.sets(st.sampled_from(one)) if one else st.just(set())) for one in lists]
    table, barrier = [None] * len(lists), Barrier(len(lists))

    def process(rank):
        def exchange(mine):
            table[rank] = mine
            barrier.wait(10)
            everyone = list(table)
            barrier.wait(10)
            return everyone

        return agree(lists[rank], lambda step: step not in bad[rank], exchange)

    with ThreadPoolExecutor(len(lists)) as pool:
        first, *others = pool.map(process, range(len(lists)))
    assert all(other == first for other in others)
    assert first[-1:] == [step for step in common(lists) if not any(step in one for one in bad)][-1:]


def test_a_step_is_complete_with_all_stages_of_one_attempt(tmp_path):
    state = trained()
    stages = cut(state, [1, 1, 1])
    save(tmp_path, 10, *stages)
    save(tmp_path, 20, *stages[:2], num_stages=3)
    for attempt, stage in (("a", 0), ("b", 2)):
        writer = saver(tmp_path, stage, 3, attempt=attempt)
        writer.save(stages[stage], position(30))
        writer.wait()
    (tmp_path / "step-00000040" / "stage-00.tmp-x").mkdir(parents=True)
    (tmp_path / "notes").mkdir()

    assert [(step.id, step.complete, step.holds(stages[2])) for step in steps(tmp_path)] == [
        (StepId(10, "a"), True, True),
        (StepId(20, "a"), False, False),
        (StepId(30, "a"), False, False),
        (StepId(30, "b"), False, True),
    ]


def test_pruning_takes_old_steps_and_what_was_left_between(tmp_path):
    for step in (10, 20, 30, 40, 50):
        (tmp_path / f"step-{step:08}" / "stage-00").mkdir(parents=True)
    prune(tmp_path, complete=[10, 20, 40], keep=2)
    assert directories(tmp_path, depth=1) == ["step-00000020", "step-00000040", "step-00000050"]
    prune(tmp_path, complete=[], keep=1)
    prune(tmp_path / "missing", complete=[1], keep=1)
    assert directories(tmp_path, depth=1) == ["step-00000020", "step-00000040", "step-00000050"]


def test_no_directory_means_no_steps_and_a_file_in_its_place_is_an_error(tmp_path):
    assert steps(tmp_path / "missing") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file: cannot be read: Not a directory"):
        steps(tmp_path / "file")
    with pytest.raises(InputError, match="keep: 0 must be at least 1"):
        saver(tmp_path, keep=0)
