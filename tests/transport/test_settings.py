import pytest

from geotrain.errors import InputError
from geotrain.transport import Settings


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        pytest.param({"connections": 0}, "connections: 0 must be 'auto' or 1 to 64", id="no connections"),
        pytest.param({"connections": 65}, "connections: 65 must be 'auto' or 1 to 64", id="too many"),
        pytest.param({"max_connections": 0}, "max_connections: 0 must be at least 1", id="none allowed"),
        pytest.param({"max_backoff_s": 0}, "max_backoff_s: 0 must be above 0", id="no time"),
        pytest.param(
            {"peer_timeout_s": 0.001}, "peer_timeout_s: 0.001 must be at least 0.1 s and at most a day", id="impatient"
        ),
        pytest.param(
            {"peer_timeout_s": 1e6}, "peer_timeout_s: 1000000.0 must be at least 0.1 s and at most a day", id="patient"
        ),
        pytest.param({"chunk_bytes": 100}, "chunk_bytes: 100 must be at least 4 KiB and below 2 GiB", id="crumbs"),
        pytest.param({"min_chunk_bytes": 1}, "min_chunk_bytes: 1 must be at least 4 KiB", id="least crumbs"),
        pytest.param(
            {"window_bytes": 1000, "max_buffer_bytes": 1001},
            "max_buffer_bytes: 1001 must fit window_bytes, 1000",
            id="narrow window",
        ),
    ],
)
def test_what_makes_no_sense_is_one_sentence(settings, complaint: str):
    with pytest.raises(InputError) as error:
        Settings(**settings)
    assert str(error.value) == complaint
