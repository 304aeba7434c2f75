"""What keys allow: on a clock of the test's own, and once with a real server."""

from dataclasses import dataclass

import openai
import pytest

from geotrain.errors import InputError
from geotrain.serving.contract import Busy
from geotrain.serving.http.auth import Caller, Keys
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.quotas import Quotas
from tests.serving.http.toy import MODEL, Toy, served, wait_until

ADA, BOB = "sk-ada-0123456789", "sk-bob-0123456789"


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_requests_under_way():
    quotas, ada, bob = Quotas(Limits()), Caller(tenant="ada", max_requests=2), Caller(tenant="bob", max_requests=2)
    first, _ = quotas.enter(ada), quotas.enter(ada)
    with pytest.raises(Busy, match="2 requests under way"):
        quotas.enter(ada)
    quotas.enter(bob)
    first.leave()
    quotas.enter(ada)


def test_requests_a_second():
    clock = Clock()
    quotas, ada = Quotas(Limits(), clock), Caller(tenant="ada", rate=0.5)
    for _ in range(5):
        quotas.enter(ada).leave()
    with pytest.raises(Busy, match=r"0\.5 requests a second") as raised:
        quotas.enter(ada)
    assert raised.value.retry_after_s == 2.0
    clock.now_s += 2.0
    quotas.enter(ada).leave()
    with pytest.raises(Busy):
        quotas.enter(ada)
    clock.now_s += 1000.0
    for _ in range(5):
        quotas.enter(ada).leave()
    with pytest.raises(Busy):
        quotas.enter(ada)


def test_tokens_under_way():
    quotas, ada = Quotas(Limits()), Caller(tenant="ada", max_tokens=100)
    first, second = quotas.enter(ada), quotas.enter(ada)
    with pytest.raises(InputError, match="101 tokens, and this tenant allows 100"):
        second.take(101)
    first.take(60)
    with pytest.raises(Busy, match="60 tokens under way and allows 100; this request asks for 50"):
        second.take(50)
    second.take(40)
    first.leave()
    quotas.enter(ada).take(60)


def test_keys_of_one_tenant_share_what_it_may():
    keys = Keys.parse(f"{ADA} team 0 requests=2\n{BOB} team 1 requests=2", source="keys")
    one, other = (keys.caller(f"Bearer {key}") for key in (ADA, BOB))
    assert one is not None and other is not None
    quotas = Quotas(Limits())
    quotas.enter(one), quotas.enter(other)
    for caller in (one, other):
        with pytest.raises(Busy, match="2 requests under way"):
            quotas.enter(caller)


def test_bodies_of_one_tenant_leave_room_for_others():
    limits = Limits(max_body_bytes=100, max_held_bytes=1000)
    quotas, ada, bob = Quotas(limits), Caller(tenant="ada"), Caller(tenant="bob")
    held = [quotas.enter(ada) for _ in range(5)]
    for one in held:
        one.read(100)
    with pytest.raises(Busy):
        held[0].read(1)
    quotas.enter(bob).read(100)
    held[1].leave()
    quotas.enter(ada).read(99)


def test_a_tenant_at_its_quota_is_told_so_and_another_is_served():
    keys = Keys.parse(f"{ADA} ada 0 requests=1\n{BOB} bob 0 tokens=20", source="keys")
    engine = Toy(holds_at=1)
    with served(engine, keys=keys) as site, site.client(key=ADA) as ada, site.client(key=BOB) as bob:
        stream = ada.completions.create(model=MODEL, prompt="a", max_tokens=2, stream=True)
        wait_until(lambda: engine.held)
        with pytest.raises(openai.RateLimitError, match="1 request under way") as raised:
            ada.completions.create(model=MODEL, prompt="a", max_tokens=1)
        assert raised.value.code == "quota_exceeded" and "retry-after" in raised.value.response.headers
        assert bob.completions.create(model=MODEL, prompt="a", max_tokens=1).choices[0].text == " 0"
        with pytest.raises(openai.BadRequestError, match="this tenant allows 20"):
            bob.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=10)
        stream.close()
        wait_until(lambda: any(entry["tenant"] == "ada" and entry["status"] != 429 for entry in site.entries(0)))
        assert ada.completions.create(model=MODEL, prompt="a", max_tokens=1).choices[0].text == " 0"
