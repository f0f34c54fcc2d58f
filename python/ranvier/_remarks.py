"""What rank 0 warns of when a policy is attached that never does what it is for, or over an optimizer that it spoils: as
remark_on_sync() of integrations/trainer/run_settings.cc, which see."""

from __future__ import annotations

import warnings
from typing import Any

import torch

TOO_FAR_OVER_MOMENTUM = 4


def remark_on(policy: Any, spec: str, compress: str, levels: list[list[int]], optimizer: torch.optim.Optimizer) -> None:
    """`levels`: the group of each rank, by level."""
    gradients = policy.gradient_level()
    if policy.averages_parameters() and gradients > 0 and gradients + 1 < len(levels) and len(set(levels[gradients])) == 1:
        codes = "" if compress == "none" else f" and compress='{compress}' has nothing to code"
        warnings.warn(
            f"all ranks share one node, in which '{spec}' averages gradients in every step{codes}: this is bsp; give "
            "place='node=2' to try on one machine what two would do",
            stacklevel=4,
        )
    if policy.outer_gain() >= TOO_FAR_OVER_MOMENTUM and isinstance(optimizer, torch.optim.SGD):
        if any(group["momentum"] > 0 for group in optimizer.param_groups):
            warnings.warn(
                f"the outer steps of '{spec}' are meant over AdamW, and go too far over the momentum of SGD; take AdamW, or "
                "'local' with the same period",
                stacklevel=4,
            )
