"""Windows and devices are kept where nobody else can put anything."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from geotrain.cli.train import _announcer
from geotrain.device import Device
from geotrain.errors import GeotrainError
from geotrain.serving.announcer import Announcer
from geotrain.serving.gate import Gate
from geotrain.training.idling import Nobody

WORDS = "its directory must be this user's, and no other may write to it"


def open_to_all(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o1777)


def of_somebody_else(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, 4242, -1)


def linked(directory: Path) -> None:
    directory.with_name("elsewhere").mkdir(mode=0o700)
    directory.symlink_to("elsewhere")


KINDS = [
    pytest.param(open_to_all, id="all-may-write"),
    pytest.param(
        of_somebody_else, id="not-ours", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give away")
    ),
    pytest.param(linked, id="a-link"),
]


@pytest.mark.parametrize("spoil", KINDS)
@pytest.mark.parametrize(
    "user",
    [
        pytest.param(lambda directory: Announcer(directory, "east-0"), id="training"),
        pytest.param(lambda directory: Gate(directory, "east-0", guard_s=0.001, quantile=0.75), id="worker"),
    ],
)
def test_a_directory_of_others_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], user: Callable[[Path], object]
):
    spoil(tmp_path / "windows")
    with pytest.raises(GeotrainError, match=WORDS):
        user(tmp_path / "windows")
    assert not any((tmp_path / "windows").iterdir())


def test_training_goes_on_and_says_why_nobody_hears(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    open_to_all(tmp_path / "windows")
    assert isinstance(_announcer(tmp_path / "windows", "east-0"), Nobody)
    assert capsys.readouterr().err == (
        f"warning: east-0: {tmp_path}/windows/east-0.window: cannot be made: {WORDS}; its idle time is not announced\n"
    )


def test_it_is_made_for_this_user_alone(tmp_path: Path):
    with closing(Announcer(tmp_path / "windows", "east-0")):
        assert (tmp_path / "windows").stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path):
    (tmp_path / "precious").write_text("keep")
    (tmp_path / f".east-0.window.{os.getpid()}").symlink_to("precious")
    (tmp_path / "east-0.device").symlink_to("precious")
    with closing(Announcer(tmp_path, "east-0")):
        assert (tmp_path / "precious").read_text() == "keep"
    with pytest.raises(GeotrainError, match="cannot be opened"):
        Device(tmp_path, "east-0")
