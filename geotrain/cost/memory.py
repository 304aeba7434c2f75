"""Bytes that one GPU of a stage holds.

Activations follow Korthikanti et al. (2205.05198), equations 1 to 5; fused attention never stores scores. Per layer
and token, in elements: layer-norm and linear inputs (2 + 2 hidden), query, key, value, attention output, feed-forward
inner values; plus two masks of a byte. For GPT in 16 bit that is their 34 s b h.
"""

from dataclasses import dataclass

from geotrain.workload import Job, Model

LOGITS_AT_A_TIME = 2**22
"""Logits of which the loss has copies in fp32 at a time, two of each."""

_FP32_BYTES = 4
_ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_OPTIMIZER_BYTES = {
    # 16-bit training keeps a 32-bit copy of the weights beside the optimizer's own values.
    ("adam", 2): 12,
    ("adam", 4): 8,
    ("sgd", 2): 8,
    ("sgd", 4): 4,
}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What one GPU holds for a stage."""

    static_bytes: float
    """Weights, gradients, optimizer state."""
    activation_bytes: float
    """Kept for each microbatch from its forward to its backward."""
    weight_grad_bytes: float
    """Kept for each microbatch between its input gradient and its weight gradient."""
    recomputed_bytes: float
    """What recompute brings back of the microbatch being worked on."""
    workspace_bytes: float
    """For the microbatch being worked on: what recompute brings back, and what the loss needs."""


def element_bytes(job: Job) -> int:
    """Bytes of one number in the job's precision."""
    return _ELEMENT_BYTES[job.precision]


def optimizer_bytes(job: Job) -> int:
    """Bytes of optimizer state per weight."""
    return _OPTIMIZER_BYTES[job.optimizer, element_bytes(job)]


def stage_parameters(job: Job, layers: float, *, is_first: bool, is_last: bool) -> float:
    """Weights of a stage; embedding and head live on the ends."""
    model = job.model
    ends = 1 if model.tied_embeddings and is_first and is_last else is_first + is_last
    return layers * model.layer_parameters + ends * model.embedding_parameters


def boundary_bytes(job: Job) -> float:
    """What crosses a boundary per microbatch: one hidden vector per token."""
    return float(job.microbatch * job.sequence * job.model.hidden * element_bytes(job))


def stage_memory(
    job: Job, layers: float, *, is_first: bool, is_last: bool, tensor_parallel: int, sequence_parallel: bool
) -> Memory:
    """Memory of one of the `tensor_parallel` GPUs that hold the stage."""
    size = element_bytes(job)
    weights = stage_parameters(job, layers, is_first=is_first, is_last=is_last) / tensor_parallel
    tokens = job.microbatch * job.sequence
    whole, split = _activation_elements(job.model)
    spread = tensor_parallel if sequence_parallel else 1
    layer = tokens * ((whole * size + 2 * job.model.hidden) / spread + split * size / tensor_parallel)
    full, layerwise, selective = (job.recompute == way for way in ("full", "layerwise", "selective"))
    scores = _score_bytes(job) * tokens / tensor_parallel
    everything = layers * (layer + (0.0 if selective else scores))
    # A head that is the embedding as well is whole on every GPU.
    shared = job.model.tied_embeddings and is_first
    words = job.model.vocab / (1 if shared else tensor_parallel) if is_last else 0.0
    stage_input = boundary_bytes(job) / spread
    kept = stage_input if full else max(layers * stage_input if layerwise else everything, stage_input)
    # What is redone inside backward is there for one layer at a time.
    one_layer = layer + scores if layerwise else scores if selective else 0.0
    return Memory(
        static_bytes=weights * (2 * size + optimizer_bytes(job)),
        activation_bytes=kept,
        weight_grad_bytes=layers * tokens * size * _weight_grad_elements(job.model) / tensor_parallel,
        recomputed_bytes=everything if full else 0.0,
        workspace_bytes=loss_bytes(tokens, words, size) + (everything if full else one_layer if layers else 0.0),
    )


def loss_bytes(tokens: int, words: float, element_bytes: int) -> float:
    """Bytes of logits, of their gradients, and of some in fp32."""
    logits = tokens * words
    return 2 * element_bytes * logits + 2 * _FP32_BYTES * min(logits, max(words, LOGITS_AT_A_TIME))


def _activation_elements(model: Model) -> tuple[float, float]:
    """Per layer and token: elements that tensor parallelism leaves whole, elements that it splits."""
    query, key_value = model.heads * model.head_dim, 2 * model.kv_heads * model.head_dim
    inner = (3 if model.activation == "swiglu" else 2) * model.ffn
    return 4.0 * model.hidden, float(query + key_value + query + inner)


def _score_bytes(job: Job) -> float:
    """Per layer and token: scores before and after softmax and a mask, unless fused attention never stores them."""
    per_score = 2 * element_bytes(job) + 1
    return float(per_score * job.model.heads * job.sequence) if job.attention == "unfused" else 0.0


def _weight_grad_elements(model: Model) -> float:
    """Per layer and token: inputs of the linear layers and gradients of their outputs."""
    query, key_value = model.heads * model.head_dim, 2 * model.kv_heads * model.head_dim
    up = (2 if model.activation == "swiglu" else 1) * model.ffn
    inputs = 2 * model.hidden + query + model.ffn
    outputs = query + key_value + 2 * model.hidden + up
    return float(inputs + outputs)
