import os

import pytest

from geotrain.errors import RunError
from geotrain.testbed.tun import open_tun


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        pytest.param(
            PermissionError(13, "Permission denied"),
            r"\(Permission denied\): the userspace WAN needs TUN; `chmod 666 /dev/net/tun` as root opens it to all$",
            id="closed",
        ),
        pytest.param(
            FileNotFoundError(2, "No such file or directory"),
            r"\(No such file or directory\): the userspace WAN needs TUN$",
            id="missing",
        ),
    ],
)
def test_a_device_that_cannot_be_opened_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, refusal: OSError, sentence: str
):
    def refuse(*_: object) -> int:
        raise refusal

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RunError, match=f"^/dev/net/tun cannot be opened {sentence}"):
        open_tun("wan")
