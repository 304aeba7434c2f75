"""What one GPU does for one microbatch: operations, bytes through its memory, bytes exchanged with its slot's GPUs.

Knows the shape of a transformer; knows neither GPUs nor how long anything takes. Bytes through memory count every
operand and result once: a product of T x K by K x N moves TK + KN + TN elements. Backward moves twice what forward
does, and adds each microbatch's weight gradients to a 32-bit sum.
"""

from dataclasses import dataclass
from functools import cached_property

from geotrain.cost.flops import Flops, stage_flops
from geotrain.cost.memory import element_bytes
from geotrain.plan import Plan
from geotrain.workload import Job

NORM_AND_RESIDUAL = 11
"""Elements moved per token and hidden unit, twice per layer together: norm reads and writes; dropout and residual
read two, write one and a mask."""
SOFTMAX = 4.5
"""Elements moved per attention score that is not fused: softmax and dropout read and write, and a mask."""
LOSS_FORWARD_BYTES, LOSS_BACKWARD_BYTES = 16, 12
"""Per logit: cast to 32 bit, maximum, exponential and sum; and the gradient back to 16 bit."""
ACCUMULATE_BYTES = 8
"""Per weight and microbatch: read and write of the 32-bit sum of gradients."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One pass, on one GPU."""

    flops: float = 0.0
    moved_bytes: float = 0.0
    exchanged_bytes: float = 0.0
    """Sent, and received, in ring all-reduces among the GPUs of a slot."""
    exchanges: float = 0.0
    """All-reduces times the GPUs beyond the first that take part."""

    def __add__(self, other: "Work") -> "Work":
        """Both, one after the other."""
        return Work(
            flops=self.flops + other.flops,
            moved_bytes=self.moved_bytes + other.moved_bytes,
            exchanged_bytes=self.exchanged_bytes + other.exchanged_bytes,
            exchanges=self.exchanges + other.exchanges,
        )


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The passes of one microbatch through a layer, or through embedding and head."""

    forward: Work
    input_grad: Work
    """With whatever selective recompute adds."""
    weight_grad: Work
    recompute: Work


@dataclass(frozen=True)
class Share:
    """A job's work as one of the `tensor_parallel` GPUs of a slot sees it."""

    job: Job
    tensor_parallel: int
    sequence_parallel: bool

    @classmethod
    def of(cls, plan: Plan) -> "Share":
        """What the plan gives one GPU."""
        return cls(plan.job, plan.tensor_parallel, plan.sequence_parallel)

    @cached_property
    def layer(self) -> Passes:
        """One transformer layer."""
        flops = stage_flops(self.job, 1, is_last=False)
        products, attention, rest = self._products_bytes(), self._attention_bytes(), self._elementwise_bytes()
        forward = Work(flops=flops.forward / self._gpus, moved_bytes=products + attention + rest) + self._reduced(2)
        weights = Work(
            flops=flops.weight_gradient / self._gpus,
            moved_bytes=products + ACCUMULATE_BYTES * self.job.model.layer_parameters / self._gpus,
        )
        inputs = Work(
            flops=flops.input_gradient / self._gpus, moved_bytes=products + 2 * (attention + rest)
        ) + self._reduced(2)
        if self.job.recompute == "selective":
            inputs += Work(flops=flops.attention / self._gpus, moved_bytes=attention)
        return Passes(forward=forward, input_grad=inputs, weight_grad=weights, recompute=forward)

    def ends(self, *, is_first: bool, is_last: bool) -> Passes:
        """Embedding and head, where the stage has them."""
        forward, inputs, weights = Work(), Work(), Work()
        table = ACCUMULATE_BYTES * self.job.model.embedding_parameters / self._gpus
        if is_first:
            forward += Work(moved_bytes=2 * self._element * self._tokens * self.job.model.hidden) + self._reduced(1)
            weights += Work(moved_bytes=table)
        if is_last:
            head = Flops(layers=0.0, attention=0.0, head=stage_flops(self.job, 0, is_last=True).head)
            logits = self._tokens * self.job.model.vocab / self._gpus
            product = self._product_bytes(self.job.model.hidden, self.job.model.vocab / self._gpus)
            forward += Work(flops=head.forward / self._gpus, moved_bytes=product + LOSS_FORWARD_BYTES * logits)
            inputs += Work(
                flops=head.input_gradient / self._gpus, moved_bytes=product + LOSS_BACKWARD_BYTES * logits
            ) + self._reduced(1)
            weights += Work(flops=head.weight_gradient / self._gpus, moved_bytes=product + table)
        return Passes(forward=forward, input_grad=inputs, weight_grad=weights, recompute=Work())

    @property
    def _gpus(self) -> int:
        return self.tensor_parallel

    @property
    def _tokens(self) -> int:
        return self.job.microbatch * self.job.sequence

    @property
    def _element(self) -> int:
        return element_bytes(self.job)

    def _reduced(self, times: int) -> Work:
        """All-reduces of one hidden vector per token: a ring sends 2 (n - 1) / n of the bytes."""
        others = self._gpus - 1
        size = self._tokens * self.job.model.hidden * self._element
        return Work(exchanged_bytes=times * 2 * others / self._gpus * size, exchanges=times * others)

    def _product_bytes(self, inputs: float, outputs: float) -> float:
        return self._element * (self._tokens * (inputs + outputs) + inputs * outputs)

    def _products_bytes(self) -> float:
        """The linear layers: query, key and value; attention output; up (and gate); down."""
        model, gpus = self.job.model, self._gpus
        query, key_value = model.heads * model.head_dim / gpus, 2 * model.kv_heads * model.head_dim / gpus
        inner, up = model.ffn / gpus, (2 if model.activation == "swiglu" else 1) * model.ffn / gpus
        shapes = [
            (model.hidden, query + key_value),
            (query, model.hidden),
            (model.hidden, up),
            (inner, model.hidden),
        ]
        return sum(self._product_bytes(*shape) for shape in shapes)

    def _attention_bytes(self) -> float:
        """Query, key, value and output; scores too, written and read around softmax, unless they are fused."""
        model = self.job.model
        heads = 2 * (model.heads + model.kv_heads) * model.head_dim
        scores = model.heads * self.job.sequence if self.job.attention == "unfused" else 0
        return self._element * self._tokens * (heads + (2 + SOFTMAX) * scores) / self._gpus

    def _elementwise_bytes(self) -> float:
        """Norms, dropout, residuals: whole on every GPU without sequence parallelism; and the activation, split."""
        model = self.job.model
        spread = self._gpus if self.sequence_parallel else 1
        activation = (3 if model.activation == "swiglu" else 2) * model.ffn / self._gpus
        return self._element * self._tokens * (NORM_AND_RESIDUAL * model.hidden / spread + activation)
