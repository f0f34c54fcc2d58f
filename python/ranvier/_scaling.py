"""torch.amp.GradScaler beside ranvier.attach: gradients are averaged without its factor, and a step is left out by all whose
gradients are one average, or by none of them."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

MARK = "_step_supports_amp_scaling"


class Scaling:
    """Of one optimizer. GradScaler skips the step of an optimizer on the rank that has found infinity, unless the optimizer
    bears MARK, as fused ones do: it then steps everywhere, and is told by attributes what has been found and by which factor
    its gradients are too large. So every rank is at each average. What each has found itself says nothing then: of infinity
    an average is infinite, and of gradients that are one average all ranks find the same."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        self._optimizer, self._parameters = optimizer, parameters
        self._bore = vars(optimizer).get(MARK)
        setattr(optimizer, MARK, True)
        self.found: bool | None = None  # infinity, by this rank, in the step under way; None: no scaler has called it
        self._left_out: list[tuple[Tensor, Tensor]] = []

    def begin(self) -> None:
        """Before gradients are averaged: takes the factor out of this rank's. Raises ValueError for those of 16 bits, in
        which small ones would be lost."""
        found = getattr(self._optimizer, "found_inf", None)
        self.found = None
        if found is None:
            return
        factor = self._optimizer.grad_scale
        # The optimizer itself has nothing to do about them any more.
        del self._optimizer.found_inf, self._optimizer.grad_scale
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if factor is not None:  # else scaler.unscale_() has been called
            if any(gradient.dtype == torch.float16 for gradient in gradients):
                raise ValueError(
                    "gradients are of float16, whose small values would be lost without GradScaler's factor, and ranks average "
                    "them without: keep parameters in float32 under autocast, or train in bfloat16"
                )
            inverse = factor.double().reciprocal().float()
            with torch.no_grad():
                for gradient in gradients:
                    gradient.mul_(inverse.to(gradient.device))
        self.found = bool(found)

    def leave_out(self, averaged: bool) -> None:
        """Behind the average: where gradients are not finite, the optimizer is to find none, and to remember nothing of
        them. Where none were `averaged`, what this rank has found itself says so."""
        if (_are_finite(self._parameters) if averaged else not self.found):
            return
        self._left_out = [(p, p.grad) for p in self._parameters if p.grad is not None]
        for parameter, _ in self._left_out:
            parameter.grad = None

    def end(self) -> None:
        """Behind the step."""
        for parameter, gradient in self._left_out:
            parameter.grad = gradient
        self._left_out = []
        if self.found is not None:  # GradScaler takes them away
            self._optimizer.found_inf = self._optimizer.grad_scale = None
        self.found = None

    def let_go(self) -> None:
        if self._bore is None:
            delattr(self._optimizer, MARK)
        else:
            setattr(self._optimizer, MARK, self._bore)


def _are_finite(parameters: list[Tensor]) -> bool:
    by_device: dict[torch.device, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            values = parameter.grad.coalesce().values() if parameter.grad.is_sparse else parameter.grad
            by_device[values.device].append(values.isfinite().all())
    return all(bool(torch.stack(each).all()) for each in by_device.values())
