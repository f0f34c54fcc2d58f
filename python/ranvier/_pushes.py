"""Gossip in lockstep: each rank gives half of what it holds to one rank and gets half of another's (Assran et al.,
"Stochastic Gradient Push for Distributed Deep Learning", ICML 2019). Which ones the policy says, include/ranvier/sync.h."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ranvier._attachment import connection_beside, flat, spread
from ranvier._wire import travels_by


class Pushes:
    """By a codec parameters travel over connections of ranvier's own; buffers, and all without one, over the group's."""

    def __init__(
        self, group: dist.ProcessGroup, name: str, compress: str, parameters: list[Tensor], buffers: list[Tensor]
    ) -> None:
        self._group, self._parameters, self._buffers = group, parameters, buffers
        self._rank, self._world = dist.get_rank(group), dist.get_world_size(group)
        self._connection, self._coded = None, None
        self._kept: Any = None  # of the codec, once this is over
        if compress != "none" and self._world > 1:
            self._connection = connection_beside(group, name)
            self._coded = torch.classes.ranvier.CodedPushes(self._connection.boxed(), compress, flat(parameters))

    def push(self, step: int, hops: int) -> int:
        """Half goes so many ranks up, and half of another rank's comes from as many below. The bytes given."""
        if self._coded is None:
            return sum(self._exchange_half(tensor, hops) for tensor in [*self._parameters, *self._buffers])
        values, before = flat(self._parameters), self._coded.bytes_sent()
        self._coded.push(step, values)
        spread(values, self._parameters)
        sent: int = self._coded.bytes_sent() - before
        return sent + sum(self._exchange_half(tensor, hops) for tensor in self._buffers)

    def _exchange_half(self, tensor: Tensor, hops: int) -> int:
        to, source = ((self._rank + step) % self._world for step in (hops, -hops))
        where = travels_by(self._group, tensor.device)
        going = tensor.detach().to(where, copy=True, memory_format=torch.contiguous_format)
        arrived = torch.empty_like(going)
        both = [  # as one: NCCL's messages wait for those before them
            dist.P2POp(dist.isend, going, group=self._group, group_peer=to),
            dist.P2POp(dist.irecv, arrived, group=self._group, group_peer=source),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        tensor.detach().add_(arrived.to(tensor.device)).div_(2)
        given: int = tensor.numel() * tensor.element_size()
        return given

    def state_dict(self) -> Any:
        return self._coded.save() if self._coded is not None else self._kept

    def load_state_dict(self, state: Any) -> None:
        """Raises ValueError for that of another model."""
        if self._coded is None or state is None:
            return
        try:
            self._coded.restore(state)
        except RuntimeError as error:
            raise ValueError(f"the state is of another model, policy or codec: attach the same ({error})") from None

    def end(self) -> None:
        """Its connections go."""
        self._kept = self.state_dict()
        self._connection, self._coded = None, None
