"""Synchronization policies for any model and optimizer, over the process group that is there already.

    sync = ranvier.attach(model, optimizer, sync="node:50")
    …                                                      # the training loop stays as it is
    sync.finish()                                          # after the last step: all replicas become one

The policy decides in C++, the same object that `ranvier train --sync` runs; tensors are averaged here, through
torch.distributed: gloo, ranvier or NCCL (not where init_process_group was given a device_id and only some ranks of
the world attach, since torch then makes groups from the world's). docs/synchronization.md explains the policies.
"""

from __future__ import annotations

from typing import SupportsIndex

import torch
import torch.distributed as dist
from torch import nn

from ranvier import _library
from ranvier._agreement import telling_others
from ranvier._attachment import as_samples
from ranvier._groups import chosen, gathering
from ranvier._own_pace import OwnPace
from ranvier._synchronization import Synchronization
from ranvier.plans import Plan


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    sync: str | Plan = "bsp",
    *,
    steps_per_epoch: int = 0,
    steps: int = 0,
    place: str = "",
    samples: float = 1,
    compress: str = "none",
    group: dist.ProcessGroup | None = None,
) -> Synchronization | OwnPace:
    """Makes the optimizer's step synchronize as the policy `sync` says. Every rank of `group` calls.

    `steps_per_epoch` is the period of policies that name none, `steps` the length of training, of which post-local takes
    a share. `place` such as "node=2" says how many nodes of consecutive ranks there are (default: a node is a host).
    `samples` of this rank in a step are its weight in every average. Rank 0's parameters and buffers become everybody's,
    frozen ones and those of other types too. `steps_per_epoch` and `steps` have to be the same on all ranks where the policy
    goes by them.

    `compress` is the codec, as ranvier.hook takes it, of what everybody's averages exchange: gradients, or how far
    parameters have come since the last one. Gradients inside a node go as they are. A codec that has momentum takes the
    place of the optimizer's.

    Gradients are averaged before the optimizer sees them, parameters after its step, floating-point buffers with
    the parameters. What rank 0's optimizer remembers (momentum, Adam's moments) becomes everybody's at first where ranks share
    gradients, which keeps it equal; else only of ranks whose own remembers nothing, since between averages of parameters it
    follows the worker's own gradients. Ranks that average gradients step by the learning rates of the
    first of them, and say so in a warning where their own are others, as by a scheduler that goes by each rank's own loss.

    `optimizer.step(closure)` evaluates the closure once, before gradients are averaged. With torch.amp.GradScaler ranks average
    gradients without its factor, and where one has found infinity all leave the step out that share its gradients: by `bsp`
    everybody, by `node` its node, by policies of own steps that rank alone. Each rank's scaler follows what it has found itself.

    Over udp:loss=… everybody's averages of gradients (float32 or shorter, without codec) do not wait for the last packets, and
    what was lost of a rank's own goes with its next step's. With resync=K, by `bsp`, ranks may differ meanwhile: behind each
    K-th step, and in finish(), their parameters become their exact average (docs/transports.md).

    `sync` may be a plan (ranvier.read_plan): policy, place and codec are its own then. Its prediction is compared with the steps
    that training takes, in any way but async, ssp and group every 20 of them, behind 3 that warm up. Where they take a quarter
    longer, or shorter by as large a factor, rank 0 plans again for 2 s at most while the others wait, all ranks go on by the
    algorithms that come out of it, and rank 0 says so in a warning; `changes` of what this returns has them. Workers at their
    own pace have no algorithms: when they meet() it is said that the plan is wrong. By bsp all gradients go at once here,
    behind the backward pass: DistributedDataParallel with ranvier.hook(plan) hides some of that.

    `auto` begins with bsp. After 10 steps, and again behind each `steps_per_epoch` (or 100), it measures what computing
    and averages take and goes on with bsp or node:16: `decisions` of what this returns has them, with the reasons. Ranks'
    samples stay their own, and nobody serves, so that shares by speed and servers are not among what it chooses from.

    By `async`, `ssp`, `group` and `ad-psgd` ranks do not wait for one another in a step, and may take as many as they like:
    what comes back has meet(), for all to look at a result together, and `samples` say what a step of this rank counts. Each
    rank's optimizer keeps its state, and what it makes of its gradients is what the others get (Ho et al., NeurIPS 2013). By
    servers the momentum of torch.optim.SGD looks ahead to what others push meanwhile (Hakimi et al., DANA, 2019).

    By other policies, where ranks may have different numbers of steps, train inside `with Join([sync]):`
    (torch.distributed.algorithms.join). Whoever is done first then takes part in the others' averages without weight;
    set_samples() is this rank's own there, and several synchronizations step in the order in which Join has them.

    Raises ValueError for a wrong spec, for a codec that the policy or the optimizer has no use for, for samples that are
    no finite number above 0, for ranks that gave different things, for complex parameters where a policy or codec is of real
    ones, for an optimizer of another model or one that is attached already, for one that remembers
    what rank 0 would have to send to others and cannot, for a model in DistributedDataParallel (which averages gradients
    itself), and for an optimizer that evaluates the model several times in a step (LBFGS); in a step, for parameters that were
    added or unfrozen since; TypeError for a spec or a place that is no str, steps that are no int and samples that are no number.
    """
    with telling_others(chosen(group)):
        plan = sync if isinstance(sync, Plan) else None
        if plan is not None and (place or compress != "none"):
            raise ValueError("a plan says place and codec itself: leave out place= and compress=, or name the policy")
        spec = sync.sync if isinstance(sync, Plan) else sync
        if plan is not None:
            place, compress = plan.place, plan.compress
        for name, word, such in (("sync", spec, "local:4"), ("place", place, "node=2"), ("compress", compress, "int8")):
            if not isinstance(word, str):
                raise TypeError(f"attach() takes a str as {name}, and this is {word!r}: write one, such as '{such}'")
        for name, count in (("steps_per_epoch", steps_per_epoch), ("steps", steps)):
            if not isinstance(count, SupportsIndex):
                raise TypeError(f"attach() takes an int as {name}, and this is {count!r}: give a whole number of steps")
        samples = as_samples(samples)
        operators = _library.load()
        at_own_pace = not operators.chosen_by_measuring(spec) and operators.at_own_pace(spec, compress)
    with torch.inference_mode(False), gathering() as made:  # what is kept changes in training
        if at_own_pace:
            return OwnPace(model, optimizer, spec, place, samples, compress, group, plan)
        synchronization = Synchronization(
            model, optimizer, spec, steps_per_epoch, steps, place, samples, compress, group, plan
        )
    synchronization._made = made
    return synchronization


__all__ = ["OwnPace", "Synchronization", "attach"]
