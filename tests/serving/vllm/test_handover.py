import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError, RunError
from geotrain.serving.vllm.handover import Form, GoneError, Handover, Shelf, taken

PROMPT = list(range(10, 17))
FORM = Form(layers=3, kv_heads=2, tokens=len(PROMPT), head_dim=4, dtype=torch.float32)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def shelf(directory: Path) -> Iterator[Shelf]:
    shelf = Shelf(directory, lease_s=60.0)
    yield shelf
    shelf.close()


def content(form: Form = FORM) -> torch.Tensor:
    shape = form.layers, 2, form.kv_heads, form.tokens, form.head_dim
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(form.dtype)


def sealed(shelf: Shelf, form: Form = FORM) -> Handover:
    handover = shelf.place(form, PROMPT)
    for layer, kv in enumerate(content(form)):
        handover.write(layer, 0, kv)
    handover.seal()
    return handover


def refusal(directory: Path, name: str, prompt: list[int] = PROMPT) -> str:
    with pytest.raises(RunError) as raised, taken(directory, name, prompt):
        pass
    return str(raised.value)


@given(
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    cuts=st.lists(st.lists(st.integers(0, 7), max_size=4).map(sorted), min_size=3, max_size=3),
    layers=st.permutations(range(3)),
    again=st.integers(0, 3),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: torch.dtype,
    cuts: list[list[int]],
    layers: list[int],
    again: int,
):
    """Layers in any order, chunks of a layer in order, and some tokens again."""
    directory = tmp_path_factory.mktemp("shelf") / "kv"
    shelf = Shelf(directory, lease_s=60.0)
    form = Form(layers=3, kv_heads=2, tokens=len(PROMPT), head_dim=4, dtype=dtype)
    handover, kv = shelf.place(form, PROMPT), content(form)
    for layer in layers:
        assert not handover.is_complete
        edges = [0, *cuts[layer], form.tokens]
        for start, end in pairwise(edges):
            start = max(start - again, 0)
            handover.write(layer, start, kv[layer][:, :, start:end])
    assert handover.is_complete
    handover.seal()
    with taken(directory, handover.name, [*PROMPT, 99]) as handed:
        assert handed.form == form
        assert all(torch.equal(handed.layer(layer), kv[layer]) for layer in range(3))
    shelf.close()
    assert list(directory.iterdir()) == []


def test_no_reader_sees_half_a_file(directory: Path, shelf: Shelf):
    handover = shelf.place(FORM, PROMPT)
    for layer, kv in enumerate(content()):
        handover.write(layer, 0, kv)
    assert "holds no keys and values, or not all of them" in refusal(directory, handover.name)
    assert not handover.is_read
    handover.seal()
    with taken(directory, handover.name, PROMPT):
        assert handover.is_read


def test_what_does_not_fit_together_is_refused(shelf: Shelf):
    handover, kv = shelf.place(FORM, PROMPT), content()[0]
    handover.write(0, 0, kv[:, :, :3])
    for layer, start, wrong, words in [
        (3, 0, kv, r"keys and values \[2, 2, 7, 4\] of layer 3 are of another model"),
        (0, 0, kv[:, :1], r"keys and values \[2, 1, 7, 4\] of layer 0 are of another model"),
        (0, 0, kv[0], r"keys and values \[2, 7, 4\] of layer 0 are of another model"),
        (0, 4, kv[:, :, 4:], "layer 0 has keys and values of 3 tokens of 7, and those of 4 to 7 came"),
        (1, 0, torch.cat((kv, kv), dim=2), "layer 1 has keys and values of 0 tokens of 7, and those of 0 to 14 came"),
        (0, 3, kv[:, :, 3:].half(), "keys and values came in torch.float32, and now in torch.float16"),
    ]:
        with pytest.raises(RunError, match=words):
            handover.write(layer, start, wrong)
    with pytest.raises(RunError, match=r"keys and values of torch.int64 cannot be handed over"):
        shelf.place(Form(layers=1, kv_heads=1, tokens=1, head_dim=1, dtype=torch.int64), [1])


@given(at=st.integers(0, 95), bits=st.integers(1, 255))
def test_a_damaged_header_is_never_used(tmp_path_factory: pytest.TempPathFactory, at: int, bits: int):
    directory = tmp_path_factory.mktemp("shelf") / "kv"
    shelf = Shelf(directory, lease_s=60.0)
    name = sealed(shelf).name
    data = bytearray((directory / name).read_bytes())
    data[at] ^= bits
    (directory / name).write_bytes(data)
    words = refusal(directory, name)
    assert "its header is damaged" in words or "holds no keys" in words
    shelf.close()


def test_a_file_that_is_too_short_or_long(directory: Path, shelf: Shelf):
    name = sealed(shelf).name
    for size, words in [
        (FORM.size_bytes - 1, f"has {FORM.size_bytes - 1} bytes and should have {FORM.size_bytes}"),
        (FORM.size_bytes + 1, f"has {FORM.size_bytes + 1} bytes and should have {FORM.size_bytes}"),
        (50, "holds no keys and values"),
        (0, "holds no keys and values"),
    ]:
        os.truncate(directory / name, size)
        assert words in refusal(directory, name)


def test_another_prompt_gets_nothing(directory: Path, shelf: Shelf):
    name = sealed(shelf).name
    assert "has the keys and values of another prompt" in refusal(directory, name, [*PROMPT[:-1], 99])
    assert "has the keys and values of another prompt" in refusal(directory, name, PROMPT[:-1])


@pytest.mark.parametrize("name", ["", "..", "../kv/x", "/etc/passwd", "a" * 31, "A" * 32, "a" * 32 + "\n", "\0" * 32])
def test_names_lead_nowhere_else(directory: Path, shelf: Shelf, name: str):
    assert refusal(directory, name) == f"{name!r} is not the name of a file with keys and values"


def test_links_lead_nowhere_else(directory: Path, shelf: Shelf, tmp_path: Path):
    name = sealed(shelf).name
    (directory / name).rename(tmp_path / name)
    (directory / name).symlink_to(tmp_path / name)
    assert "cannot be read" in refusal(directory, name)


def test_gone_is_gone(directory: Path, shelf: Shelf):
    handover = sealed(shelf)
    with taken(directory, handover.name, PROMPT) as handed:
        handover.close()
        assert torch.equal(handed.layer(2), content()[2]), "who has begun may read on"
    with pytest.raises(GoneError, match="is gone"), taken(directory, handover.name, PROMPT):
        pass
    handover.close()
    handover.renew()


def test_a_lease_that_nobody_renews_ends(directory: Path, shelf: Shelf):
    handover = sealed(shelf)
    path = directory / handover.name
    os.utime(path, (path.stat().st_mtime - 61,) * 2)
    with pytest.raises(GoneError, match="nobody has renewed its lease of 60 s"), taken(directory, path.name, PROMPT):
        pass
    handover.renew()
    with taken(directory, handover.name, PROMPT):
        pass


def test_files_are_for_this_user_only(directory: Path, shelf: Shelf):
    name = sealed(shelf).name
    assert (directory.stat().st_mode & 0o777, (directory / name).stat().st_mode & 0o777) == (0o700, 0o600)
    (directory / name).chmod(0o640)
    assert "no other may read or write it" in refusal(directory, name)


def test_directories_that_cannot_be_used(tmp_path: Path, directory: Path, shelf: Shelf):
    with pytest.raises(InputError, match="another process fills it; give each bridge its own"):
        Shelf(directory, lease_s=1.0)
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(InputError, match="must belong to this user"):
        Shelf(tmp_path / "open", lease_s=1.0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used for keys and values"):
        Shelf(tmp_path / "file", lease_s=1.0)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="cannot be used for keys and values"):
        Shelf(tmp_path / "link", lease_s=1.0)


KILLED = """
import os, signal, sys, torch
from pathlib import Path
from geotrain.serving.vllm.handover import Form, Shelf
shelf = Shelf(Path(sys.argv[1]), lease_s=60.0)
shelf.place(Form(layers=1, kv_heads=1, tokens=1, head_dim=1, dtype=torch.float32), [1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_bridge_has_left_is_removed_by_the_next(directory: Path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(directory)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(directory.iterdir())) == 1
    (directory / "notes.txt").write_text("mine")
    Shelf(directory, lease_s=60.0).close()
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]


@contextmanager
def no_file_above(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_no_room(directory: Path, shelf: Shelf):
    with no_file_above(100), pytest.raises(RunError, match=f"{directory}: no room for keys and values: File too large"):
        shelf.place(FORM, PROMPT)
    assert list(directory.iterdir()) == []
    handover = shelf.place(FORM, PROMPT)
    with no_file_above(100), pytest.raises(RunError, match=f"{directory}: no room for keys and values: File too large"):
        handover.write(0, 0, content()[0])
    handover.close()
    assert list(directory.iterdir()) == []
