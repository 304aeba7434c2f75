"""What is behind a key, and how little is read of requests that need none."""

import pytest

from geotrain.serving.http import door
from geotrain.serving.http.auth import Keys
from tests.serving import patient
from tests.serving.http.toy import MODEL, Toy, served

KEY = "sk-0123456789abcdef"
KEYED = {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("path", ["/health", "/nowhere", "/metrics"])
def test_a_body_that_needs_no_key_is_short(path: str):
    """Nothing there takes one, and all bodies share the room of those who have keys."""
    with served(Toy(), keys=Keys.parse(KEY, source="keys"), metrics_keys=Keys()) as site:
        for size, refused in ((door._STRANGER_BYTES, False), (door._STRANGER_BYTES + 1, True)):
            for content in (b"x" * size, iter([b"x" * size])):
                answer = patient.post(site.url + path, content=content)
                assert (answer.status_code == 413) == refused, answer.text
        assert answer.json()["error"]["message"] == "the body has more than 1024 bytes, the most that is read"
        body = {"model": MODEL, "prompt": "a", "max_tokens": 1, "made_up": "x" * 2 * door._STRANGER_BYTES}
        assert patient.post(f"{site.url}/v1/completions", json=body, headers=KEYED).status_code == 200


def test_the_schema_needs_a_key_where_requests_do():
    with served(Toy(), keys=Keys.parse(KEY, source="keys")) as site:
        assert patient.get(f"{site.url}/openapi.json").status_code == 401
        assert "/v1/completions" in patient.get(f"{site.url}/openapi.json", headers=KEYED).json()["paths"]
        for path in ("/docs", "/redoc"):
            assert patient.get(site.url + path).status_code == 404
    with served(Toy()) as site:
        assert patient.get(f"{site.url}/openapi.json").status_code == 200
