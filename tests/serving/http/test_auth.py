"""Keys: who is let in, and that no key is ever shown."""

from pathlib import Path

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.serving.http.auth import Caller, Keys
from tests.serving import patient
from tests.serving.http.toy import MODEL, Toy, served

ADA, BOB = "sk-ada-0123456789", "sk-bob-0123456789"
FILE = f"# our teams\n{ADA} ada 2 requests=20 rate=0.5 tokens=1000\n\n{BOB}\n"


def test_a_file_of_keys(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text(FILE)
    keys = Keys.load(path)
    assert keys.caller(f"Bearer {ADA}") == Caller(tenant="ada", priority=2, max_requests=20, max_tokens=1000, rate=0.5)
    assert keys.caller(f"bearer  {BOB} ") == Caller(tenant="key-4", max_requests=256)


@given(st.text())
def test_nothing_but_a_key_opens(header: str):
    keys = Keys.parse(FILE, source="keys")
    assert keys.caller(header) is None
    assert keys.caller(f"Bearer {header}") is None or header.strip(" ") in (ADA, BOB)


def test_no_keys_let_everybody_in():
    assert Keys().caller("") == Caller() and not Keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("# nobody", "keys: has no key", id="none"),
        pytest.param("short ada", "keys: line 1: a key must be 16 to 256", id="short"),
        pytest.param(f"{ADA} a/b", "keys: line 1: a tenant must be", id="tenant"),
        pytest.param(f"{BOB}\n{ADA} ada 9", "keys: line 2: a priority must be 0 to 4", id="priority"),
        pytest.param(f"{ADA} ada 1 {BOB}", "keys: line 1: has 4 words", id="words"),
        pytest.param(f"{ADA} ada 1 rate=0", "keys: line 1: a quota must be", id="quota"),
        pytest.param(f"{ADA} ada tokens=1 tokens=2", "keys: line 1: a quota must be", id="quota twice"),
        pytest.param(f"{ADA} requests=1.5", "keys: line 1: a quota must be", id="part of a request"),
        pytest.param(f"{ADA} requests=1 ada", "keys: line 1: a quota must be", id="order"),
        pytest.param(
            f"{ADA} a 1 rate=1\n{BOB} a 1 rate=2",
            "keys: line 2: its tenant has another key with other",
            id="quotas differ",
        ),
        pytest.param(f"{ADA} ada\n{ADA} bob", "keys: line 2: this key is given twice", id="twice"),
    ],
)
def test_wrong_files_are_refused_without_showing_a_key(text: str, message: str):
    with pytest.raises(InputError, match=message) as raised:
        Keys.parse(text, source="keys")
    assert ADA not in str(raised.value) and BOB not in str(raised.value)


def test_keys_are_nowhere_in_memory_that_can_be_shown():
    keys = Keys.parse(FILE, source="keys")
    assert ADA not in repr(vars(keys))


def test_only_with_a_key():
    with served(Toy(), keys=Keys.parse(FILE, source="keys")) as site:
        with site.client(key="sk-eve-0123456789") as eve, pytest.raises(openai.AuthenticationError) as raised:
            eve.completions.create(model=MODEL, prompt="a")
        assert (raised.value.status_code, raised.value.code) == (401, "invalid_api_key")
        assert patient.post(f"{site.url}/v1/completions", content=b"x" * 1000).status_code == 401
        assert patient.get(f"{site.url}/v1/models").headers["www-authenticate"] == "Bearer"
        assert patient.get(f"{site.url}/health").status_code == 200
        assert site.engine.prompts == []
        with site.client(key=ADA) as ada:
            ada.completions.create(model=MODEL, prompt="a", user="eve")
        with site.client(key=BOB) as bob:
            bob.completions.create(model=MODEL, prompt="a", user="bob")
        log = "".join(map(str, site.entries(6)))
    assert [(prompt.tenant, prompt.priority) for prompt in site.engine.prompts] == [("ada", 2), ("key-4", 0)]
    assert not any(secret in log for secret in (ADA, BOB, "sk-eve"))


@pytest.mark.parametrize(
    ("metrics_keys", "opens", "closed"),
    [
        pytest.param(None, ADA, "sk-eve-0123456789", id="those of the API"),
        pytest.param("sk-prometheus-0123", "sk-prometheus-0123", ADA, id="their own"),
    ],
)
def test_metrics_need_a_key_where_requests_do(metrics_keys: str | None, opens: str, closed: str):
    own = None if metrics_keys is None else Keys.parse(metrics_keys, source="metrics")
    with served(Toy(), keys=Keys.parse(FILE, source="keys"), metrics_keys=own) as site:
        for key, status in ((opens, 200), (closed, 401)):
            answer = patient.get(f"{site.url}/metrics", headers={"authorization": f"Bearer {key}"})
            assert answer.status_code == status
        assert patient.get(f"{site.url}/metrics").status_code == 401
        assert patient.get(f"{site.url}/health").status_code == 200
        if own is not None:
            answer = patient.get(f"{site.url}/v1/models", headers={"authorization": f"Bearer {opens}"})
            assert answer.status_code == 401


def test_metrics_are_open_where_there_are_no_keys_and_may_be_guarded_alone():
    with served(Toy()) as site:
        assert patient.get(f"{site.url}/metrics").status_code == 200
    with served(Toy(), metrics_keys=Keys.parse(BOB, source="metrics")) as site:
        assert patient.get(f"{site.url}/metrics").status_code == 401
        assert patient.get(f"{site.url}/v1/models").status_code == 200
