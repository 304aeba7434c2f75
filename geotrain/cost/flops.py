"""Floating-point operations of a stage, per microbatch. A multiply-add is two.

Forward of a linear layer: 2 x tokens x weights. Attention scores and their use: 4 x samples x sequence^2 x heads x
head size, causal or not (the convention of Megatron-LM, SC'21, appendix; so 24 B s h^2 (1 + s/6h) per GPT layer).
"""

from dataclasses import dataclass

from geotrain.workload import Job


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Forward operations by what they are made of."""

    layers: float
    """Linear layers of the transformer layers."""
    attention: float
    """Scores and their use; no weights, so no weight gradient."""
    head: float
    """The projection onto the vocabulary."""

    @property
    def forward(self) -> float:
        """All of it."""
        return self.layers + self.attention + self.head

    @property
    def recompute(self) -> float:
        """The head is never recomputed."""
        return self.layers + self.attention

    @property
    def input_gradient(self) -> float:
        """As much as forward for linear layers; attention has two inputs to each product."""
        return self.layers + self.head + 2 * self.attention

    @property
    def weight_gradient(self) -> float:
        """As much as forward, for what has weights."""
        return self.layers + self.head


def stage_flops(job: Job, layers: float, *, is_last: bool) -> Flops:
    """Forward operations of `layers` layers on one microbatch; the last stage has the head."""
    model = job.model
    tokens = job.microbatch * job.sequence
    return Flops(
        layers=2.0 * tokens * model.layer_parameters * layers,
        attention=4.0 * tokens * job.sequence * model.heads * model.head_dim * layers,
        head=2.0 * tokens * model.embedding_parameters if is_last else 0.0,
    )
