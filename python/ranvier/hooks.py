"""Compressed gradients for DistributedDataParallel over the process group that it already has.

    ddp.register_comm_hook(*ranvier.hook("hadamard:32+int4"))
    ddp.register_comm_hook(*ranvier.hook(ranvier.read_plan("plan.toml")))

Codes are made on the CPU, and travel as byte tensors through that group's all_to_all, all_gather and all_reduce: gloo,
ranvier or NCCL (where init_process_group was given a device_id, all ranks of the world have to call). All ranks end with
the same bits. docs/codecs.md explains codecs, presets ("safe", "strong", "extreme", "transformer"), error feedback, and how a bucket
becomes its average.

Over udp:loss=… the spec "none" is for gradients that do not wait for the last packets: what was lost goes with the next
step's, and is held back until then.

What is held back belongs in a checkpoint, and every rank saves its own:

    state, hook = ranvier.hook("topk:0.01+int8")
    ddp.register_comm_hook(state, hook)
    ...
    torch.save({"model": ddp.module.state_dict(), "hook": state.state_dict(ddp.module)}, f"rank{rank}.pt")

    saved = torch.load(f"rank{rank}.pt")
    model.load_state_dict(saved["model"])
    state, hook = ranvier.hook("topk:0.01+int8")
    state.load_state_dict(model, saved["hook"])
    DistributedDataParallel(model).register_comm_hook(state, hook)

or, as PyTorch's own hooks are saved, `torch.save({"state": state, "hook": hook}, …)`, whole objects, which torch.load gives
back with weights_only=False.
"""

# No `from __future__ import annotations`: DDP looks at the annotations of a hook and wants types, not their names.

import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ranvier._agreement import given_by_all, telling_others
from ranvier._bounded import Lossy, exchange_of_gradients, lost_share_of
from ranvier._exchanges import Exchange, Plain, Went, make_exchange
from ranvier._followed_plan import FollowedPlan, PlanChange
from ranvier._groups import chosen, follow_in, leave, new_name
from ranvier._memory import Memories, owed_elsewhere, require_record
from ranvier._momentum import OnlyMomentum
from ranvier._nodes import keeps_steps, speakers
from ranvier._step_times import BucketTimes, StepSeconds
from ranvier._streams import Behind, on_host
from ranvier._wire import Wire
from ranvier._worker import Worker
from ranvier.plans import Plan

Hook = Callable[["CompressionState", dist.GradBucket], torch.futures.Future[Tensor]]


def hook(
    spec: str | Plan, group: dist.ProcessGroup | None = None, *, scaler: torch.amp.GradScaler | None = None
) -> "tuple[CompressionState, Hook]":
    """What DDP.register_comm_hook takes. `spec` is a codec's or a preset's name, "powersgd:4", "acpsgd:4", "thc:8",
    "switchml" or "none"; `group` the one that DDP was given; none: the default group.

    Or it is a plan (ranvier.read_plan) whose policy is bsp, for a DDP that was made with bucket_cap_mb=plan.bucket_mb. Its
    prediction is compared with every 20 steps, behind 3 that warm up. Where they take a quarter longer, or shorter by as large
    a factor, rank 0 plans again for 2 s at most while the others wait, all ranks go on by the codec and the algorithms that
    come out of it, and rank 0 says so in a warning; `changes` of the state has them. Buckets stay as DDP has made them, and
    so does a codec that has momentum.

    `scaler`, where losses are scaled by one: gradients are coded without its factor, which changes from time to time, so that
    what is held back of one step suits the next. On a GPU its factor is read once a step, which waits for the device.

    Codes travel in a process group of their own, of the same ranks: all of them call, at the same point between what
    else they do in `group`, and no rank outside of it. Which groups a rank has besides does not matter. It stays, with some
    15 MB and two threads, until torch.distributed.destroy_process_group(), or close() of the state.

    Raises ValueError for a spec that is wrong, on whichever rank, or that another rank does not have, for a plan of another
    number of ranks or of another policy, and TypeError for one that is no str, and for a group or a scaler that is none. A
    codec that has momentum (dgc, and with it "strong" and "extreme"; demo; momentum=) takes the place of the optimizer's: one
    that has momentum, or betas as Adam's, or is given them later, is refused by a ValueError in its step, before that changes
    anything.
    """
    if isinstance(spec, Plan):
        return CompressionState(spec.compress, group, spec, scaler), compress
    return CompressionState(spec, group, None, scaler), compress


def compress(state: "CompressionState", bucket: dist.GradBucket, *others: Any) -> torch.futures.Future[Tensor]:
    """The hook: returns at once, and averages while backward goes on."""
    if others or isinstance(bucket, (Tensor, tuple)):
        raise TypeError(
            "ranvier.hook is for DistributedDataParallel's own reducer, and what calls it here brings no bucket of its gradients, "
            "as FullyShardedDataParallel and torch._dynamo.config.optimize_ddp = 'python_reducer' do not: leave the hook out there"
        )
    return state.start(bucket)


class CompressionState:
    """A codec, and what it holds back of each parameter's gradients.

    A copy that was pickled takes the default group, and what it holds goes to parameters in the order in which DDP
    brings them: for the same model under the same settings of DDP. load_state_dict goes by names. A copy has no `scaler`
    either; where losses are scaled, set it.
    """

    def __init__(
        self,
        spec: str,
        group: dist.ProcessGroup | None = None,
        plan: Plan | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.spec = spec
        self.scaler = scaler
        self._factor = 1.0  # the scaler's, in this step
        self.plain_buckets = 0  # that went uncompressed, since a value was NaN, infinite or beyond 2^50
        self._memories = Memories(spec)
        self._number = 0  # of the next bucket: what is random follows from it
        self._begins = True  # until its first bucket
        self._world = 0  # of the run that a pickled state is of
        self._speakers: list[int] = []  # likewise, see speakers()
        self._way: tuple[Wire, Exchange] | None = None
        self._over: tuple[int, float] | None = None  # once closed: what it has sent, and what share was lost
        self._followed: FollowedPlan | None = None
        self._times: BucketTimes | None = None  # from the first bucket on
        self._judging: Future[None] | None = None
        self._step = 0  # of the plan's: complete ones
        self._gradient_bytes = [0, 0]  # of this step so far, and of the one before
        self._take(group, plan)

    def _take(self, group: dist.ProcessGroup | None, plan: Plan | None = None) -> "tuple[Wire, Exchange]":
        whole = self._whole = chosen(group)
        with telling_others(whole):
            _require_scaler(self.scaler)
            make_exchange(self.spec, dist.get_world_size(whole))
            if plan is not None and plan.sync != "bsp":
                raise ValueError(
                    f"the plan's policy is '{plan.sync}', and DistributedDataParallel averages gradients in every step: give the "
                    "plan to ranvier.attach, and the model without DDP"
                )
            followed = FollowedPlan(plan, whole, keeps_codec=False) if plan is not None else None
        text = plan.text if plan is not None else ""
        everybodys = given_by_all(whole, "hook()", (self.spec, new_name(), text))
        for rank, (spec, _, theirs) in enumerate(everybodys):
            if spec != self.spec:
                raise ValueError(
                    f"rank {dist.get_rank(whole)} compresses with '{self.spec}' and rank {rank} with '{spec}': give hook() the "
                    "same spec on every rank"
                )
            if theirs != text:
                raise ValueError(
                    f"rank {dist.get_rank(whole)} and rank {rank} do not follow the same plan: give hook() the same file's on "
                    "every rank"
                )
        wire = Wire(whole, everybodys[0][1])
        exchange = exchange_of_gradients(wire, self.spec)
        if followed is not None:
            followed.group, followed.keeps_codec = wire.group, exchange.momentum > 0
            self._followed = followed
        # One thread: buckets go in the order in which backward finishes them, which is the same on all ranks.
        self._thread = Worker("ranvier-hook")
        # Sums that tolerate loss are waited for on another, since a path of theirs is long: many are under way at once.
        self._waiter = Worker("ranvier-hook-waits") if isinstance(exchange, Lossy) else None
        self._process = os.getpid()
        self._way = wire, exchange
        self._only_momentum = OnlyMomentum(self.spec, exchange.momentum) if exchange.momentum > 0 else None
        if self._world != 0 and (self._world, self._speakers) != (wire.world, speakers(exchange)):
            self._number = 0
            self._memories.leave_their_world(keeps_steps(exchange))
        self._world, self._speakers = wire.world, speakers(exchange)
        return self._way

    @property
    def changes(self) -> list[PlanChange]:
        """Of the plan that it follows, since steps took longer or shorter than predicted."""
        return self._followed.changes if self._followed else []

    @property
    def bytes_sent(self) -> int:
        """Of this process."""
        return self._way[0].bytes_sent if self._way else self._over[0] if self._over else 0

    @property
    def lost_share(self) -> float:
        """Of what other ranks gave to this rank's averages, the share that these went without, over udp:loss=…: from 0 to 1.
        This rank's own part that others went without is not lost, it goes with the next step's gradients."""
        return lost_share_of(self._way[0]) if self._way else self._over[1] if self._over else 0.0

    @property
    def momentum(self) -> float:
        """Not 0: averages contain this momentum, and the optimizer must add none."""
        return make_exchange(self.spec, 1).momentum

    def state_dict(self, module: nn.Module) -> dict[str, Any]:
        """What this rank holds back, by the names of parameters, and how far it is; every rank saves its own. Tensors,
        numbers and strings only."""
        _require_module(module, "state_dict()")
        records = {name: self._memories.record_of(parameter) for name, parameter in module.named_parameters()}
        return {
            "spec": self.spec,
            "world": self._world,
            "speakers": self._speakers,
            "number": self._number,
            "parameters": {name: record for name, record in records.items() if record is not None},
            "plan": self._followed.state_dict() if self._followed else None,
        }

    def load_state_dict(self, module: nn.Module, state: dict[str, Any]) -> None:
        """Takes up what state_dict gave, perhaps of another spec: what is held back is owed, whatever the codec. With the
        same spec training goes on as if it had not stopped, to the bit where DDP forms the same buckets: a new DDP forms
        them anew after its first step, but for find_unused_parameters=True. Of a run of more or fewer ranks what is owed is
        taken up, and ranks that were not there load nothing; so where the number of ranks is the same, but one comes without.
        Raises ValueError for what state_dict did not give, for a parameter that `module` does not have, and for one that has
        changed its size; nothing is taken up then.
        """
        _require_module(module, "load_state_dict()")
        records = _records_in(state)
        parameters = dict(module.named_parameters())
        if unknown := next((name for name in records if name not in parameters), None):
            raise ValueError(
                f"'{unknown}', of which this state holds something back, is no parameter of this {type(module).__name__}: "
                "save and load with the same module, the model itself, which is ddp.module and not ddp"
            )
        for name, record in records.items():
            require_record(parameters[name], record, name, self.spec)
        if self._way and self._followed and state.get("world", 0) == self._way[0].world:
            if self._followed.load_state_dict(state.get("plan"), self._step):
                self._go_by(self._followed.plan)
        wire, exchange = self._way or (None, make_exchange(self.spec, 1))
        same_world = state.get("world", 0) in (0, wire.world if wire else dist.get_world_size())
        same_world = same_world and state.get("speakers", []) == self._speakers
        self._memories.forget()
        for name, record in records.items():
            kept = record if same_world else owed_elsewhere(record, keeps_steps(exchange))
            self._memories.restore(parameters[name], kept, name)
        self._number = state["number"] if same_world else 0

    def close(self) -> None:
        """Gives back the group with its memory and threads, of a model that trains no more. Every rank calls, behind its last
        step; again it does nothing. What is held back stays, for state_dict()."""
        if self._way is None:
            return
        wire, _ = self._way
        self._over, self._way = (self.bytes_sent, self.lost_share), None
        if self._only_momentum:
            self._only_momentum.end()
        self._thread.end()
        if self._waiter:
            self._waiter.end()
        served = [each.type for each in self._whole._device_types]
        leave([wire.group], self._whole, torch.device("cpu" if "cpu" in served else served[0]))

    def __getstate__(self) -> dict[str, Any]:
        return {
            "spec": self.spec,
            "world": self._world,
            "speakers": self._speakers,
            "number": self._number,
            "plain_buckets": self.plain_buckets,
            "parameters": self._memories.records(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.spec = state["spec"]
        self.scaler, self._factor = None, 1.0
        self.plain_buckets = state["plain_buckets"]
        self._world, self._speakers = state.get("world", 0), state.get("speakers", [])
        self._memories = Memories(self.spec)
        self._memories.wait_for(state["parameters"])
        self._number = state["number"]
        self._followed, self._times, self._judging = None, None, None  # a copy goes by the codec alone
        self._begins = True
        self._way, self._over = None, None  # until DDP brings the first bucket: who looks at a checkpoint may be in no group

    def start(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        if self._over is not None:
            raise ValueError("close() has ended this hook: register one of its own, of ranvier.hook, for each DDP that trains")
        _, exchange = self._way or self._take(None)
        if os.getpid() != self._process:  # the thread is not here, and nobody would ever answer
            raise ValueError(
                "this process was forked off after ranvier.hook was given its group, which stays with the parent: start "
                'processes with the method "spawn" or "forkserver", or make group and hook here'
            )
        buffer, parameters = bucket.buffer(), bucket.parameters()
        _require_dense_and_real(buffer, parameters, exchange)
        if self._only_momentum:
            self._only_momentum.meet(parameters)
        if self._begins:
            self._begin_alike(buffer.device)
        if bucket.index() == 0:
            self._factor = float(self.scaler.get_scale()) if self.scaler is not None and self.scaler.is_enabled() else 1.0
        number, self._number = self._number, self._number + 1
        factor = self._factor
        behind = Behind(buffer.device)
        if self._followed:
            self._time(self._followed, bucket, behind)
        done: torch.futures.Future[Tensor] = torch.futures.Future(devices=behind.devices)

        def run(part: Callable[[], bool]) -> None:
            try:
                with behind.a_stream():
                    if part():
                        done.set_result(buffer)
            except BaseException as error:  # noqa: BLE001: DDP raises it where it waits
                done.set_exception(error)

        def begin() -> bool:
            if self._judging:
                self._judging.result()  # of this thread, so that it is done, or has failed
            assert self._way is not None
            wire, exchange = self._way
            finish = self._begin(wire, exchange, buffer, parameters, number, factor)
            if self._waiter:
                self._waiter.submit(partial(run, finish))
                return False
            return finish()

        self._thread.submit(partial(run, begin))
        return done.then(lambda future: future.value())  # an exception that was set, C++ would take for the result

    def _begin_alike(self, device: torch.device) -> None:
        """Where not all ranks go on from the same bucket, they are other ones than those of the checkpoint."""
        self._begins = False
        assert self._way is not None
        wire, exchange = self._way
        wire.device = wire.device_for(device)
        if not wire.all_have(self._number):
            self._number = 0
            self._memories.leave_their_world(keeps_steps(exchange))

    def _begin(
        self, wire: Wire, exchange: Exchange, buffer: Tensor, parameters: list[Tensor], number: int, factor: float
    ) -> Callable[[], bool]:
        """The buffer has the average once what this returns has been called, on any thread; True."""
        # float16 and bfloat16 are encoded as they are: float32 holds each of their values. What goes plain keeps wider
        # types. float32 on the CPU is averaged where it lies: DDP looks at the bucket again when it has the average.
        exact = on_host(buffer.detach()).to(torch.promote_types(buffer.dtype, torch.float32))
        wire.device, wire.floats = wire.device_for(buffer.device), exact.dtype == torch.float32
        if factor != 1:
            exact.div_(factor)
        memory = self._memories.of(parameters, exchange.kinds)
        memory.pay(exact, exchange.kinds)
        values = exact if isinstance(exchange, Plain) else exact.float()
        arrived: Callable[[], None] | None = None
        went = Went.CODED
        if isinstance(exchange, Lossy):
            arrived = exchange.start(wire, values, memory, number)
        else:
            went = exchange.average(wire, values, memory, number)
        self.plain_buckets += went is not Went.CODED
        if went is Went.NOT:
            values = exact
            Plain().average(wire, values, memory, number)
        memory.step += 1

        def finish() -> bool:
            if arrived is not None:
                arrived()
            if factor != 1:
                values.mul_(factor)
            if values.data_ptr() != buffer.data_ptr():
                buffer.copy_(values)
            if self._times:
                self._times.one_is_back()
            return True

        return finish

    def _time(self, followed: FollowedPlan, bucket: dist.GradBucket, behind: Behind) -> None:
        """And judges the plan where that is due, before this step's first bucket goes."""
        self._times = self._times or BucketTimes(bucket.buffer().device)
        if bucket.index() == 0:
            self._times.step_begins(followed.window())
            self._gradient_bytes = [0, self._gradient_bytes[0]]
            if self._gradient_bytes[1] > 0:
                self._step += 1
                if followed.is_due(self._step):
                    self._judge(followed, self._times.last(), behind)
        if self._step == 0 and any(parameter.is_complex() for parameter in bucket.parameters()):
            followed.keeps_codec = True
        self._gradient_bytes[0] += bucket.buffer().numel() * bucket.buffer().element_size()
        if bucket.is_last():
            self._times.last_is_ready()

    def _judge(self, followed: FollowedPlan, own: list[StepSeconds], behind: Behind) -> None:
        def judge() -> None:
            with behind.a_stream():
                if plan := followed.judge(self._step, own, self._gradient_bytes[1]):
                    self._go_by(plan)

        self._judging = self._thread.submit(judge)

    def _go_by(self, plan: Plan) -> None:
        """Between two buckets, of which none is under way. What the codec before has held back goes on."""
        assert self._way is not None
        wire, _ = self._way
        follow_in(wire.group, plan.table())
        if plan.compress == self.spec:
            return
        exchange = exchange_of_gradients(wire, plan.compress)
        self.spec, self._way = plan.compress, (wire, exchange)
        self._memories.spec = plan.compress
        self._speakers = speakers(exchange)


def _require_scaler(scaler: Any) -> None:
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(
            f"hook() takes a torch.amp.GradScaler as scaler, and this is {scaler!r}: give the one that scales losses, or leave it "
            "out"
        )


def _require_module(module: Any, call: str) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(f"{call} takes a torch.nn.Module, and this is {module!r}: give it the model itself, which is ddp.module")


def _records_in(state: dict[str, Any]) -> dict[str, Any]:
    lacking = [key for key in ("parameters", "number") if not isinstance(state, dict) or key not in state]
    if lacking:
        raise ValueError(
            f"this is not what state_dict of ranvier.hook's state gave, it has no '{lacking[0]}': of a checkpoint pass the "
            "part that was saved of the hook"
        )
    records: dict[str, Any] = state["parameters"]
    if not isinstance(records, dict):
        raise ValueError("this is not what state_dict of ranvier.hook's state gave, its 'parameters' are no dict of names")
    return records


def _require_dense_and_real(buffer: Tensor, parameters: list[Tensor], exchange: Exchange) -> None:
    if buffer.layout != torch.strided:
        raise ValueError(
            f"ranvier.hook: the gradient of a parameter of {' x '.join(map(str, buffer.shape))} values is sparse, and hooks "
            "average dense ones: make its nn.Embedding with sparse=False, or train without the hook"
        )
    # The bucket has two real numbers for each of them, and what codecs keep would be of other places.
    if not isinstance(exchange, Plain) and any(parameter.is_complex() for parameter in parameters):
        raise TypeError(
            "ranvier.hook: codecs are of real numbers, and gradients here are complex: take the spec 'none', or train "
            "without the hook"
        )


__all__ = ["CompressionState", "compress", "hook"]
