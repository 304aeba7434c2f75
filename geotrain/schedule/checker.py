"""The one checker: accepts any order of actions that can be played, refuses any other and says why."""

from collections import deque
from collections.abc import Iterator

from geotrain.action import Action, Kind
from geotrain.errors import ScheduleError
from geotrain.schedule.schedule import Orders, Shape
from geotrain.units import plural

_BACKWARDS = (Kind.B, Kind.I)


def check(orders: Orders, shape: Shape) -> None:
    """Raise ScheduleError at the first rule that is broken."""
    if not orders.codes or len(orders.codes) % shape.num_stages:
        raise ScheduleError(
            f"the schedule has {plural(len(orders.codes), 'slot')}, the plan has {plural(shape.num_stages, 'stage')}"
        )
    for pipeline in orders.of_pipelines(shape.num_stages):
        _check_pipeline(list(pipeline), shape)


def _check_pipeline(slots: list[list[Action]], shape: Shape) -> None:
    for slot, actions in enumerate(slots):
        _check_place(slot, actions, shape)
        _check_whole(slot, actions, shape)
        _check_own_order(slot, actions, shape)
        _check_room(slot, actions, shape)
        _check_workspace(slot, actions)
    _check_progress(slots, shape)


def _check_place(slot: int, actions: list[Action], shape: Shape) -> None:
    for position, action in enumerate(actions):
        if action.stage >= shape.num_model_stages or action.stage % shape.num_stages != slot:
            raise ScheduleError(f"slot {slot}, position {position}: {action} belongs to another slot")
        if action.microbatch >= shape.num_microbatches:
            raise ScheduleError(
                f"slot {slot}, position {position}: {action} names microbatch {action.microbatch}, "
                f"the last is {shape.num_microbatches - 1}"
            )


def _check_whole(slot: int, actions: list[Action], shape: Shape) -> None:
    seen: set[Action] = set()
    for position, action in enumerate(actions):
        if action in seen:
            raise ScheduleError(f"slot {slot}, position {position}: {action} comes twice")
        seen.add(action)
    for stage in range(slot, shape.num_model_stages, shape.num_stages):
        for m in range(shape.num_microbatches):
            if Action(stage, Kind.F, m) not in seen:
                raise ScheduleError(f"slot {slot}: {Action(stage, Kind.F, m)} is missing")
            fused = Action(stage, Kind.B, m) in seen
            halves = {kind for kind in (Kind.I, Kind.W) if Action(stage, kind, m) in seen}
            if fused == bool(halves) or len(halves) == 1:
                raise ScheduleError(
                    f"slot {slot}: stage {stage}, microbatch {m} needs either B or both I and W, "
                    f"it has {' and '.join(sorted(k.name for k in halves | ({Kind.B} if fused else set()))) or 'none'}"
                )


def _check_own_order(slot: int, actions: list[Action], shape: Shape) -> None:
    place = {action: position for position, action in enumerate(actions)}
    for action, position in place.items():
        stage, kind, m = action
        for earlier in _before(action):
            if earlier in place and place[earlier] > position:
                raise ScheduleError(f"slot {slot}, position {position}: {action} comes before {earlier}")
        if kind in _BACKWARDS and shape.recompute and Action(stage, Kind.R, m) not in place:
            straight = stage == shape.num_model_stages - 1 and place[Action(stage, Kind.F, m)] == position - 1
            if not straight:
                raise ScheduleError(f"slot {slot}, position {position}: {action} lacks {Action(stage, Kind.R, m)}")
        if kind == Kind.R and not shape.recompute:
            raise ScheduleError(f"slot {slot}, position {position}: {action}, but the job does not recompute")


def _before(action: Action) -> Iterator[Action]:
    """What the same slot must have done for this microbatch and stage."""
    order = (Kind.F, Kind.R, Kind.B, Kind.I, Kind.W)
    for kind in order[: order.index(action.kind)]:
        yield Action(action.stage, kind, action.microbatch)


def _check_room(slot: int, actions: list[Action], shape: Shape) -> None:
    held = 0
    for position, action in enumerate(actions):
        if action.kind == Kind.F:
            held += 1
        elif action.kind in _BACKWARDS:
            held -= 1
        if held > shape.room[slot]:
            raise ScheduleError(
                f"slot {slot}, position {position}: {action} makes {plural(held, 'microbatch')} in flight, "
                f"there is room for {shape.room[slot]}"
            )


def _check_workspace(slot: int, actions: list[Action]) -> None:
    """What recompute brings back fills the workspace until its backward."""
    recomputed: Action | None = None
    for position, action in enumerate(actions):
        if action.kind == Kind.R:
            if recomputed is not None:
                raise ScheduleError(
                    f"slot {slot}, position {position}: {action} comes before the backward of {recomputed}, "
                    "and there is room to recompute one microbatch at a time"
                )
            recomputed = action
        elif action.kind in _BACKWARDS and recomputed == action._replace(kind=Kind.R):
            recomputed = None


def _check_progress(slots: list[list[Action]], shape: Shape) -> None:
    """Play without a clock: every slot goes on until its next action lacks its input."""
    done: set[tuple[Kind, int, int]] = set()
    position = [0] * len(slots)
    todo = deque(range(len(slots)))
    while todo:
        slot = todo.popleft()
        while position[slot] < len(slots[slot]):
            action = slots[slot][position[slot]]
            if not _has_input(action, done, shape):
                break
            position[slot] += 1
            if action.kind == Kind.F or action.kind in _BACKWARDS:
                forward = action.kind == Kind.F
                done.add((Kind.F if forward else Kind.B, action.stage, action.microbatch))
                neighbour = (action.stage + (1 if forward else -1)) % shape.num_stages
                if neighbour != slot and neighbour not in todo:
                    todo.append(neighbour)
    for slot, actions in enumerate(slots):
        if position[slot] < len(actions):
            raise ScheduleError(
                f"slot {slot}, position {position[slot]}: {actions[position[slot]]} waits for ever; "
                "the slots wait for each other"
            )


def _has_input(action: Action, done: set[tuple[Kind, int, int]], shape: Shape) -> bool:
    stage, kind, m = action
    if kind == Kind.F:
        return stage == 0 or (Kind.F, stage - 1, m) in done
    if kind in _BACKWARDS:
        return (Kind.F, stage, m) in done if stage == shape.num_model_stages - 1 else (Kind.B, stage + 1, m) in done
    return True
