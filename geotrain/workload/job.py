"""The job file: which model, which batch, how it is trained, and what was measured of it."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from geotrain.cluster.gpu import Precision
from geotrain.files import Document, Number, Whole
from geotrain.units import Bytes, Seconds
from geotrain.workload.catalog import MODELS, find_model
from geotrain.workload.efficiency import Efficiency
from geotrain.workload.model import Model

Recompute = Literal["full", "layerwise", "selective", "none"]
Optimizer = Literal["adam", "sgd"]


def _model(value: object) -> object:
    """A catalog name, a whole model, or a catalog name with changes."""
    if isinstance(value, str):
        return find_model(value)
    if isinstance(value, dict) and "name" in value and "hidden" not in value:
        try:
            return {**find_model(str(value["name"])).model_dump(), **value}
        except ValueError as error:
            raise ValueError(f"name is {value['name']!r} and {error}") from None
    return value


ModelChoice = Annotated[Model, BeforeValidator(_model, json_schema_input_type=Literal[*MODELS] | Model)]


class StageProfile(Document):
    """Measured figures of one stage; each replaces its formula."""

    forward_s: Seconds | None = None
    backward_s: Seconds | None = None
    recompute_s: Seconds | None = None
    weight_grad_s: Seconds | None = None
    """The part of backward_s that makes weight gradients."""
    static_bytes: Bytes | None = None
    """Weights, gradients and optimizer state on one GPU."""
    activation_bytes: Bytes | None = None
    """What one GPU holds for each microbatch in flight."""
    weight_grad_bytes: Bytes | None = Field(None, ge=0)
    """What one GPU still holds of a microbatch between its input gradient and its weight gradient."""
    workspace_bytes: Bytes | None = None
    """What one GPU needs on top while it works on a microbatch."""

    @model_validator(mode="after")
    def _weight_gradient_is_a_part(self) -> Self:
        if self.weight_grad_s is not None and self.backward_s is not None and self.weight_grad_s > self.backward_s:
            raise ValueError(
                f"weight_grad_s is {self.weight_grad_s:g} and must be at most backward_s, {self.backward_s:g}, "
                "of which it is a part"
            )
        return self


class Profile(Document):
    """Measured values that replace formulas."""

    stage: StageProfile | list[StageProfile] = StageProfile.model_construct()
    """One entry for every stage, or one for all."""
    boundary_bytes: Bytes | None = None
    """What crosses a boundary per microbatch and direction."""
    gradient_bytes: Bytes | None = None
    """Per stage, for the data-parallel all-reduce."""
    optimizer_s: Seconds | None = None

    def of_stage(self, stage: int) -> StageProfile:
        """The entry of that stage."""
        return self.stage[stage] if isinstance(self.stage, list) else self.stage


def _recompute(value: object) -> object:
    return ("full" if value else "none") if isinstance(value, bool) else value


class Job(Document):
    """What is to be trained."""

    model: ModelChoice
    """A name of `geotrain catalog`, `{name: ..., layers: ...}` to change one, or a whole model."""
    sequence: Whole = Field(0, ge=1, validate_default=True)
    """Tokens per sample; left out, the catalog model's."""
    microbatch: Whole = Field(1, ge=1)
    """Samples per microbatch."""
    microbatches: Whole | None = Field(None, ge=1)
    """Per pipeline and step; or give global_batch."""
    global_batch: Whole | None = Field(None, ge=1)
    """Samples per step over all pipelines; or give microbatches."""
    precision: Precision = "bf16"
    recompute: Annotated[Recompute, BeforeValidator(_recompute, json_schema_input_type=bool | Recompute)] = "full"
    """full (true): keep a stage's input only; layerwise: each layer's input, redone inside backward; selective: redo
    attention scores; none (false): keep all."""
    attention: Literal["fused", "unfused"] = "fused"
    """unfused: attention scores go through the GPU's memory, as before FlashAttention."""
    optimizer: Optimizer = "adam"
    efficiency: Annotated[Number, Field(gt=0, le=1)] | Efficiency | None = None
    """Achieved share of peak, if known; or a rule that `geotrain validate --calibrate` wrote; else the built-in one."""
    profile: Profile = Profile.model_construct()

    @field_validator("sequence", mode="before")
    @classmethod
    def _sequence_of_the_model(cls, value: object, info: ValidationInfo) -> object:
        if value:
            return value
        model: Model | None = info.data.get("model")
        if model is None:
            return 1  # the complaint about the model is enough
        if model.sequence is None:
            raise PydanticKnownError("missing")
        return model.sequence

    @model_validator(mode="after")
    def _one_batch_size(self) -> Self:
        if self.microbatches is not None and self.global_batch is not None:
            raise ValueError(
                f"microbatches is {self.microbatches} and global_batch is {self.global_batch}: give only one of them"
            )
        if self.microbatches is None and self.global_batch is None:
            raise ValueError("microbatches is missing: give it, or global_batch")
        return self
