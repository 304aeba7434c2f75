"""1F1B (Megatron): a warm-up as long as the way to the last stage, then one forward, one backward, then drain."""

from geotrain.action import Kind, pack
from geotrain.schedule.passes import finish
from geotrain.schedule.schedule import Orders, Shape


def one_f_one_b(shape: Shape) -> Orders:
    """Holds at most num_stages - s microbatches on stage s; less warm-up where memory is short."""
    total = shape.num_microbatches
    orders = []
    warm_up = total
    for s in range(shape.num_stages):
        # A stage that waits for more forwards than the one before it will send would wait for ever.
        warm_up = min(warm_up, shape.num_stages - 1 - s, shape.room[s] - 1)
        order = [pack(s, Kind.F, m) for m in range(warm_up)]
        for m in range(total - warm_up):
            order += [pack(s, Kind.F, warm_up + m), pack(s, Kind.B, m)]
        order += [pack(s, Kind.B, m) for m in range(total - warm_up, total)]
        orders.append(finish(order, recompute=shape.recompute, last_stage=shape.num_stages - 1))
    return Orders.of(orders)
