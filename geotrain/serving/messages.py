"""What serve, prefill workers and the decoder say to each other: headers of frames, checked field by field.

Knows neither sockets nor torch. A message with a `tensor` is followed by its bytes, row by row, and by nothing else.
"""

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from geotrain.serving.contract import Finish, Sampling
from geotrain.transport import FrameError

VERSION = 1
_MOST_WORDS = 200

Whole = Annotated[int, Field(ge=0, le=2**48)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Text = Annotated[str, Field(max_length=4096)]
RequestId = Annotated[str, Field(min_length=1, max_length=128)]
Address = Annotated[str, Field(min_length=1, max_length=300)]

Role = Literal["serve", "worker", "decoder"]
HEARTBEAT_S = 1.0
"""Nobody is silent for longer."""

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Tensor(_Strict):
    """What the bytes behind a header are."""

    dtype: Literal["float32", "float16", "bfloat16", "int64"]
    shape: Annotated[tuple[Whole, ...], Field(max_length=6)]

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


class Hello(_Strict):
    """First on every connection, from both sides."""

    kind: Literal["hello"] = "hello"
    version: Whole = VERSION
    secret: Annotated[str, Field(min_length=1, max_length=256, repr=False)]
    role: Role
    name: Annotated[str, Field(min_length=1, max_length=40)]


class Slice(_Strict):
    """The tokens of one prompt that a task works on."""

    request: RequestId
    position: Whole
    """Of the first of them in the prompt."""
    tokens: Annotated[int, Field(ge=1, le=2**32)]
    prompt_tokens: Annotated[int, Field(ge=1, le=2**32)]
    sampling: Sampling | None = None
    """Where the prompt ends here: how its first token is chosen."""


class Task(_Strict):
    """To a worker: one chunk of a booking, through layers of its slot."""

    kind: Literal["task"] = "task"
    booking: Whole
    place: Whole
    """Of the slot in its instance."""
    layers: tuple[Whole, Whole]
    """The first, and the one behind the last: all that the slot has, or some where another one has them too."""
    chunk: Whole
    slices: Annotated[tuple[Slice, ...], Field(min_length=1, max_length=4096)]
    unit_s: Seconds
    """That a layer should take."""
    seldom_s: Seconds
    """Than which it seldom takes longer."""
    next: Address | None = None
    """Of the worker that has the following layers."""
    decoder: Address
    """Where keys and values go, and the first tokens."""
    tensor: Tensor | None = None
    """Token ids of all slices, for the first place; the others get hidden states."""


class Hidden(_Strict):
    """To the next worker: what came out of the layers before its own, all slices of the task behind one another."""

    kind: Literal["hidden"] = "hidden"
    booking: Whole
    chunk: Whole
    tensor: Tensor


class Kv(_Strict):
    """To the decoder: keys and values of one layer, [2, kv_heads, token, head_dim]."""

    kind: Literal["kv"] = "kv"
    request: RequestId
    layer: Whole
    position: Whole
    tensor: Tensor


class FirstToken(_Strict):
    """To the decoder: the prompt is through."""

    kind: Literal["first_token"] = "first_token"
    request: RequestId
    token: Whole


class Report(_Strict):
    """From a worker: how a task is going."""

    kind: Literal["report"] = "report"
    booking: Whole
    place: Whole
    chunk: Whole
    what: Literal["started", "done"]
    now_s: Seconds
    """Times are the machine's monotonic clock."""
    pieces: Annotated[tuple[tuple[Seconds, Seconds], ...], Field(max_length=4096)] = ()
    """From when to when it was worked on, without the time between windows."""
    waited_s: Seconds = 0.0
    """That it was ready and had no window."""


class Forget(_Strict):
    """To a worker: these bookings are over, or nobody waits for them any more."""

    kind: Literal["forget"] = "forget"
    bookings: Annotated[tuple[Whole, ...], Field(min_length=1, max_length=65536)]


class Cancel(_Strict):
    """To the decoder: nobody waits for these any more."""

    kind: Literal["cancel"] = "cancel"
    requests: Annotated[tuple[RequestId, ...], Field(min_length=1, max_length=4096)]


class Ready(_Strict):
    """From a worker or the decoder: it has its weights."""

    kind: Literal["ready"] = "ready"
    address: Address
    """Where it listens for the others."""
    room_tokens: Whole = 0
    """Of a decoder: tokens whose keys and values it can hold."""


class Measure(_Strict):
    """To a worker: find out how long chunks of these lengths take, each after so many cached tokens."""

    kind: Literal["measure"] = "measure"
    points: Annotated[tuple[tuple[Whole, Whole], ...], Field(min_length=1, max_length=64)]


class Measured(_Strict):
    """From a worker: seconds of one layer, for each point asked for."""

    kind: Literal["measured"] = "measured"
    unit_s: Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=64)]


class Window(_Strict):
    """Idle time of a slot that is over."""

    mark: Whole
    """What it waited for: the number of an action of the step, or one of the two marks behind these."""
    start_s: Seconds
    end_s: Seconds


class Step(_Strict):
    """From a worker: its slot has begun a training step."""

    kind: Literal["step"] = "step"
    number: Whole
    begin_s: Seconds
    length_s: Seconds
    """That it should have."""
    windows: Annotated[tuple[Window, ...], Field(max_length=65536)] = ()
    """That ended in the step before."""
    complete: bool = False
    """Whether these are all."""
    first: bool = False
    """Whether it is the first of this training process that the worker has seen."""


class Windows(_Strict):
    """From a worker: what became of its slot's idle time, since it began."""

    kind: Literal["windows"] = "windows"
    trains: bool
    """Whether training runs beside it."""
    offered_s: Seconds
    used_s: Seconds
    wasted_s: Annotated[dict[Text, Seconds], Field(max_length=16)] = {}
    """By reason."""
    overruns: Whole
    overrun_s: Seconds
    guard_s: Seconds


class Heartbeat(_Strict):
    """From everybody, when there is nothing else to say."""

    kind: Literal["heartbeat"] = "heartbeat"
    now_s: Seconds
    held_tokens: Whole = 0
    """For whose keys and values memory is taken."""


class DecodeStart(_Strict):
    """To the decoder: keep room for this prompt, whose token ids follow, and its answer."""

    kind: Literal["decode_start"] = "decode_start"
    request: RequestId
    sampling: Sampling
    tensor: Tensor


class Token(_Strict):
    """What one more token adds to an answer."""

    request: RequestId
    text: str
    token: Whole | None = None
    finish: Finish | None = None


class Tokens(_Strict):
    """From the decoder: what one step has brought to everybody; answers end with a finish."""

    kind: Literal["tokens"] = "tokens"
    tokens: Annotated[tuple[Token, ...], Field(min_length=1, max_length=65536)]


class Error(_Strict):
    """Something failed: a request, or without one, the connection."""

    kind: Literal["error"] = "error"
    request: RequestId | None = None
    message: Text


Message: TypeAlias = (
    Hello
    | Task
    | Hidden
    | Kv
    | FirstToken
    | Report
    | Forget
    | Cancel
    | Ready
    | Measure
    | Measured
    | Step
    | Windows
    | Heartbeat
    | DecodeStart
    | Tokens
    | Error
)

_ANY: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


def encode(message: Message) -> bytes:
    """The header's bytes."""
    return message.model_dump_json(exclude_none=True).encode()


def decode(header: bytes) -> Message:
    """The message that these bytes are; FrameError, which shows none of them, if they are none."""
    try:
        return _ANY.validate_json(header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the header"
        words = f"{where}: {first['msg']}"[:_MOST_WORDS]
        raise FrameError(f"a frame that cannot be understood: {words.encode('ascii', 'replace').decode()}") from None


def payload_bytes(message: Message) -> int:
    """What must follow the header."""
    tensor: Tensor | None = getattr(message, "tensor", None)
    return 0 if tensor is None else tensor.size_bytes
