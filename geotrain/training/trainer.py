"""A run, as one of its processes sees it: find the others, take up where the last checkpoint is, train, leave.

Every process does the same in the same order; what differs is its seat.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from geotrain.errors import InputError, RunError
from geotrain.plan import Plan
from geotrain.seating import Seat, Seating
from geotrain.tokens import Batches
from geotrain.training.assembly import Assembly, assemble, open_batches
from geotrain.training.control import Control, Meeting
from geotrain.training.executor import Executor
from geotrain.training.gloo import broadcast
from geotrain.training.idling import Idling, Listener, Nobody
from geotrain.training.leaving import Leaving
from geotrain.training.lines import first_line
from geotrain.training.lock import Lock
from geotrain.training.options import Options
from geotrain.training.post import Mailbox, Routes
from geotrain.training.preflight import check_plan
from geotrain.training.process import Place, device_name
from geotrain.training.recorder import Recorder
from geotrain.training.recording import fingerprint
from geotrain.training.saving import NoSaving, Saving
from geotrain.training.script import Script
from geotrain.training.telling import Telling, Watch
from geotrain.training.terms import Terms, check, terms
from geotrain.training.wiring import Wires, Wiring
from geotrain.transport import Credentials, Identity

_LOCK_PATIENCE_S = 10.0
"""For the process that had this one's place before and is about to end."""


def train(
    plan: Plan,
    options: Options,
    *,
    journal: Callable[[], Watch],
    listen: Callable[[str], Listener] | None = None,
) -> dict[str, Any] | None:
    """Take part in a run until its last step; the leading process keeps a journal and returns what it said last.

    `listen`, called with the name of this process, makes who is told when its slot is idle.
    """
    seating, place = Seating(plan), Place.of()
    if place.is_done:
        return None
    check_plan(plan, options)
    seat = seating.seat(options.dc, place.rank, place.size)
    batches = open_batches(plan, options)
    if options.keys is None and len(seating.dcs) > 1 and seat == seating.seats[0]:
        sys.stderr.write("warning: no keys: neither encryption nor proof of who connects; for a private link only\n")
    device = place.device()
    leaving = Leaving()
    try:
        if seat.rank == 0:
            lock = Lock(options.out / f"{seat.dc}.lock", patience_s=_LOCK_PATIENCE_S)
            leaving.then(lambda patience_s: lock.release())
        place.join(deadline_s=options.deadline_s)
        watch = None
        if seat == seating.seats[0]:
            watch = journal()
            leaving.then(lambda patience_s: watch.close())
        listener = Nobody() if listen is None else listen(seat.name)
        leaving.then(lambda patience_s: listener.close())
        _Run(options, seating, seat, device, batches, leaving, foresees=listen is not None).train(watch, listener)
        place.done()
        leaving.leave()
        dist.destroy_process_group()
        return None if watch is None else watch.last
    except RuntimeError as error:
        # This is how gloo and NCCL say that a process is gone, and CUDA that its memory is full.
        leaving.patience_s = 0.0
        raise RunError(f"{seat.name}: {first_line(error)}") from error
    except BaseException:
        leaving.patience_s = 0.0
        raise
    finally:
        leaving.leave()


class _Run:
    def __init__(
        self,
        options: Options,
        seating: Seating,
        seat: Seat,
        device: torch.device,
        batches: Batches | None,
        leaving: Leaving,
        *,
        foresees: bool,
    ) -> None:
        plan = seating.plan
        self.plan, self.options, self.seating, self.seat = plan, options, seating, seat
        alone = len(seating.seats) == 1
        self.script = Script.unpack(
            broadcast(Script.of(plan).pack() if seat.rank == 0 else b"", len(seating.world(seat.dc)))
        )
        self.identity = Identity(
            job=f"train-{fingerprint(plan)}",
            node=seat.name,
            credentials=None if options.keys is None else Credentials(options.keys / seat.name),
            insecure=options.keys is None,
        )
        meeting = Meeting(seating, seat, self.identity, options.control, options.peer_timeout_s)
        leaving.then(lambda patience_s: meeting.close())
        leaders = meeting.open(options.deadline_s)
        self.control = Control(seating, seat, leaders, self.identity.job, options.deadline_s)
        leaving.then(self.control.close)
        self._agree(terms(plan, self.script, options, batches))
        offset_s = 0.0 if alone else self.control.clock_offset_s()
        self.recorder = Recorder(
            options.out,
            seat,
            plan=plan,
            pooled=self.script.pooled,
            clock_offset_s=offset_s,
            steps=options.recorded,
            device="emulated" if options.compute == "emulated" else device_name(device),
        )
        self.offset_s = offset_s
        self.mailbox = Mailbox(self.recorder.arrived, foresees=foresees)
        meeting.on_restart = self.mailbox.fail
        self.assembly: Assembly = assemble(options, seating, seat, self.script, device, batches)
        self.wiring = wiring = Wiring(
            seating=seating,
            seat=seat,
            script=self.script,
            identity=self.identity,
            host=options.host,
            form=self.assembly.form,
            mailbox=self.mailbox,
            peer_timeout_s=options.peer_timeout_s,
            deadline_s=options.deadline_s,
        )
        self.wires: Wires = wiring.open(self.control)
        leaving.then(self.wires.close)
        self.learner = self.assembly.learner(self.control, wiring, leaving)
        self.saving: Saving | NoSaving = NoSaving()
        if batches is not None:
            self.saving = Saving(plan, options, seating, seat, self.learner, batches.fingerprint, self.control)

    def _agree(self, mine: Terms) -> None:
        """All processes must be about to do the same."""
        told = self.control.gather(mine)
        try:
            check(self.seat, mine, self.seating.seats, told)
        except InputError:
            self.control.flush()
            raise

    def train(self, watch: Watch | None, listener: Listener) -> None:
        """All steps that are left."""
        routes = Routes(
            slot=self.seat.stage,
            num_stages=self.script.num_stages,
            lines=self.wires.lines,
            mailbox=self.mailbox,
            deadline_s=self.options.deadline_s,
            on_send=self.recorder.sent,
            shared=self.assembly.shared,
        )
        cues = self.script.cues(self.seat.pipeline % self.plan.pipelines_per_cell, self.seat.stage)
        idling = Idling(cues, step_time_s=self.script.step_time_s, listener=listener)
        executor = Executor(
            cues,
            num_model_stages=self.script.num_model_stages,
            compute=self.learner.compute,
            post=routes,
            log=self.recorder,
            idling=idling,
        )
        telling = Telling(self.plan, self.options, self.control, watch)
        for step in range(self.saving.resume(), self.options.steps):
            self._step(step, routes, executor, idling, telling)
            self.saving.after(step)
        routes.finish()
        self.saving.finish()
        try:
            self.recorder.write()
        except RunError as error:
            sys.stderr.write(f"warning: {self.seat.name}: {error}\n")
        self.control.gather("done")

    def _step(
        self, step: int, routes: Routes, executor: Executor[torch.Tensor], idling: Idling, telling: Telling
    ) -> None:
        recipe, clips = self.options.recipe, self.options.compute == "torch" and self.options.recipe.clip > 0
        begin_s = time.monotonic()
        self.learner.begin(step)
        routes.begin(step)
        busy_s = executor.step(step)
        reduce_start_s = time.monotonic()
        self.learner.reduce()

        def tell(until: int, *, updated: bool) -> float:
            """Until all have told, or until later, there is nothing to do."""
            loss, norm2, wan_bytes = self.learner.loss(), self.learner.squared_norm(), self.wiring.bytes_sent
            idling.wait(until)
            return telling.tell(
                step,
                loss=loss,
                norm2=norm2,
                busy_s=busy_s,
                begin_s=begin_s + self.offset_s,
                wan_bytes=wan_bytes,
                updated=updated,
            )

        norm = tell(idling.told, updated=False) if clips else 0.0
        update_start_s = time.monotonic()
        if clips:
            idling.reach(idling.told, update_start_s)
        self.learner.update(recipe.rate_at(step, self.options.steps), norm)
        update_end_s = time.monotonic()
        telling.over(update_end_s + self.offset_s)
        self.recorder.step(
            step,
            begin_s=begin_s,
            reduce_start_s=reduce_start_s,
            update_start_s=update_start_s,
            update_end_s=update_end_s,
        )
        saves = self.saving.is_due(step)
        if not clips:
            tell(idling.told if saves else idling.next, updated=True)
        elif not saves:
            idling.wait(idling.next)
        if saves:
            idling.pause()
            telling.finish()
