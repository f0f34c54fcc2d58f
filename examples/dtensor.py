"""DTensor: one matrix that lies in parts on several ranks, and is computed with as if it were whole.

    torchrun --nproc-per-node=2 examples/dtensor.py

A power iteration: the largest singular value of a matrix whose rows are spread over the ranks. Each product leaves a
vector in parts or a sum that is still to be added up; redistribute() is where ranks talk: reduce_scatter, all_reduce
and all_gather. Prints what one rank alone prints, too.
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

ROWS, COLUMNS, STEPS = 96, 48, 200


def main() -> None:
    dist.init_process_group("ranvier")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    whole = torch.randn(ROWS, COLUMNS)
    matrix = distribute_tensor(whole, mesh, [Shard(0)])  # scatters rank 0's
    right = distribute_tensor(torch.ones(COLUMNS, 1), mesh, [Replicate()])  # broadcasts it
    for _ in range(STEPS):
        left = matrix @ right  # each rank has its own rows of it
        sums = matrix.t() @ left  # each rank has a part of the sum
        assert left.placements == (Shard(0),) and (sums.placements == (Partial(),) or mesh.size() == 1)
        parts = sums.redistribute(placements=[Shard(0)])  # reduce_scatter: each rank has some of the whole sums
        length = parts.norm().redistribute(placements=[Replicate()])  # all_reduce of each part's
        right = (parts / length).redistribute(placements=[Replicate()])  # all_gather
    largest = (matrix @ right).redistribute(placements=[Replicate()]).to_local().norm()  # all_gather
    by_columns = matrix.redistribute(placements=[Shard(1)])  # where GPUs exchange, torch gathers on CPUs
    assert torch.equal(by_columns.full_tensor(), whole)
    if dist.get_rank() == 0:
        held = tuple(matrix.to_local().shape)
        print(f"largest singular value {largest.item():.4f}; rank 0 holds {held[0]} of {ROWS} rows")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
