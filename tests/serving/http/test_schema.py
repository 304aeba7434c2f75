"""Requests made from the OpenAPI schema, right and wrong ones: never a 5xx, always an error that clients understand."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.serving.http.toy import MODEL, Site, Toy, served

EXAMPLES = 12


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(Toy()) as site:
        yield site


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_no_request_breaks_the_server(site: Site, path: str, mode: GenerationMode):
    schema = schemathesis.openapi.from_url(f"{site.url}/openapi.json")

    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(schema[path]["POST"].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = MODEL
        answer = case.call()
        assert answer.status_code in (200, 400)
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]

    ask()
