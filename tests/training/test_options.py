from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.training.options import Options


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", ""])
def test_a_host_that_means_any_address_is_refused_for_peers_are_told_it(host: str):
    with pytest.raises(InputError, match="is no address that others can reach"):
        Options(dc="east", out=Path("run"), compute="emulated", host=host)


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7", "node-7.east"])
def test_an_address_or_a_name_is_taken(host: str):
    assert Options(dc="east", out=Path("run"), compute="emulated", host=host).host == host
