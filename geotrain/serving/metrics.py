"""What Prometheus sees: vLLM's names where the meaning is the same, geotrain's own for bubbles.

The HTTP side counts requests and tokens, the engine its queues and bubbles. Any thread may call.
"""

from collections.abc import Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 30, 60, 120, 300, 600)
_GAPS_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000)

Finished = Literal["stop", "length", "abort", "error"]
BubbleState = Literal["offered", "used", "wasted"]


class Metrics:
    """All metrics of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._ttft = self._times("vllm:time_to_first_token", "From arrival to the first token")
        self._gap = self._times("vllm:inter_token_latency", "Between two tokens of an answer", _GAPS_S)
        self._e2e = self._times("vllm:e2e_request_latency", "From arrival to the last token")
        self._queue = self._times("vllm:request_queue_time", "From arrival to the first unit of prefill")
        self._prefill = self._times("vllm:request_prefill_time", "From the first unit of prefill to the first token")
        self._decode = self._times("vllm:request_decode_time", "From the first token to the last")
        self._prompt_tokens = self._sizes("vllm:request_prompt_tokens", "Tokens of a prompt")
        self._answer_tokens = self._sizes("vllm:request_generation_tokens", "Tokens of an answer")
        self._prompt_total = self._counter("vllm:prompt_tokens", "Tokens of finished prompts", "model_name")
        self._answer_total = self._counter("vllm:generation_tokens", "Tokens given out", "model_name")
        self._finished = self._counter("vllm:request_success", "Requests by their end", "model_name", "finished_reason")
        self._rejected = self._counter("vllm:admission_rejections", "Requests turned away", "model_name", "reason")
        self._running = self._gauge("vllm:num_requests_running", "Requests being worked on", "model_name")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Requests that wait for their turn", "model_name")
        self._responses = self._counter("geotrain:http_responses", "Answers by route and status", "path", "status")
        self._refusals = self._counter("geotrain:http_refusals", "Requests and connections refused", "reason")
        self._bubbles = self._counter("geotrain:bubble_seconds", "Idle time of training slots", "state", "reason")
        self._overruns = self._counter("geotrain:overruns", "Units of prefill still on when training came back")
        self._overrun_s = self._counter("geotrain:overrun_seconds", "Time by which they were late")
        self._guard = self._gauge("geotrain:guard_seconds", "Time left free before training is expected back")
        self._admission = self._times("geotrain:admission", "From arrival to being taken or turned away", _GAPS_S)
        self._wait = self._times("geotrain:wait_for_bubble", "Waiting of a ready unit for a bubble", labels=())
        self._step = self._times("geotrain:training_step", "Steps of the training run", labels=())
        self._change = self._gauge("geotrain:training_step_change", "Share by which prefill makes steps longer")

    def text(self) -> bytes:
        """For /metrics."""
        return generate_latest(self.registry)

    # Told by the HTTP side.

    def responded(self, path: str, status: int) -> None:
        """A request to a known route was answered."""
        self._responses.labels(path, status).inc()

    def refused(self, reason: str) -> None:
        """A request was answered with this error, or a connection was ended by a limit."""
        self._refusals.labels(reason).inc()

    def observe_ttft(self, model: str, ttft_s: float) -> None:
        """The first token of an answer."""
        self._ttft.labels(model).observe(ttft_s)

    def observe_gap(self, model: str, gap_s: float) -> None:
        """A later token, so long after the one before."""
        self._gap.labels(model).observe(gap_s)

    def finished(self, model: str, reason: Finished, *, e2e_s: float, prompt_tokens: int, answer_tokens: int) -> None:
        """A prompt that was taken is done with."""
        self._finished.labels(model, reason).inc()
        self._prompt_total.labels(model).inc(prompt_tokens)
        self._answer_total.labels(model).inc(answer_tokens)
        if reason in ("stop", "length"):
            self._e2e.labels(model).observe(e2e_s)
            self._prompt_tokens.labels(model).observe(prompt_tokens)
            self._answer_tokens.labels(model).observe(answer_tokens)

    def rejected(self, model: str, reason: str) -> None:
        """A request was not taken."""
        self._rejected.labels(model, reason).inc()

    # Told by the engine.

    def set_load(self, model: str, *, running: int, waiting: int) -> None:
        """How many there are now."""
        self._running.labels(model).set(running)
        self._waiting.labels(model).set(waiting)

    def observe_admission(self, model: str, admission_s: float) -> None:
        """A request was taken, or turned away."""
        self._admission.labels(model).observe(admission_s)

    def observe_queue(self, model: str, queue_s: float) -> None:
        """The first unit of a prompt begins."""
        self._queue.labels(model).observe(queue_s)

    def observe_prefill(self, model: str, prefill_s: float) -> None:
        """The last unit of a prompt is done."""
        self._prefill.labels(model).observe(prefill_s)

    def observe_decode(self, model: str, decode_s: float) -> None:
        """An answer is complete."""
        self._decode.labels(model).observe(decode_s)

    def observe_wait_for_bubble(self, wait_s: float) -> None:
        """A unit that was ready had to wait for a bubble."""
        self._wait.observe(wait_s)

    def add_bubble(self, state: BubbleState, seconds: float, *, reason: str = "") -> None:
        """Idle time of a slot: offered by training, used by prefill, or wasted, and why."""
        self._bubbles.labels(state, reason).inc(seconds)

    def add_overruns(self, number: int, late_s: float) -> None:
        """Units that were still running when training came back."""
        self._overruns.inc(number)
        self._overrun_s.inc(late_s)

    def set_guard(self, guard_s: float) -> None:
        """The margin in force."""
        self._guard.set(guard_s)

    def observe_step(self, step_s: float) -> None:
        """Training did a step."""
        self._step.observe(step_s)

    def set_step_change(self, share: float) -> None:
        """How much longer steps are with prefill than without."""
        self._change.set(share)

    def _times(
        self, name: str, words: str, buckets: Sequence[float] = _SECONDS, labels: Sequence[str] = ("model_name",)
    ) -> Histogram:
        return Histogram(f"{name}_seconds", words, labels, buckets=buckets, registry=self.registry)

    def _sizes(self, name: str, words: str) -> Histogram:
        return Histogram(name, words, ("model_name",), buckets=_TOKENS, registry=self.registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(name, words, labels, registry=self.registry)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(name, words, labels, registry=self.registry)
