"""The examples beyond data-parallel training: each gives what one rank alone gives."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from ranks import on_ranks, port_of_a_store

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, world: int, *arguments: str) -> list[str]:
    """What each rank printed. The ranks are what torchrun would start, forked from a server that has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "torch.nn.parallel", "ranvier"])
    with port_of_a_store() as port:
        ranks = []
        for rank in range(world):
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(target=_example, args=(writer, name, rank, world, port, arguments), daemon=True)
            process.start()
            writer.close()
            ranks.append((process, reader))
        printed = []
        for rank, (process, reader) in enumerate(ranks):
            assert reader.poll(100), f"rank {rank} of {name} gave no result"
            printed.append(reader.recv())
            process.join(20)
            assert process.exitcode == 0, (name, rank, process.exitcode)
    return printed


def _example(writer, name, rank, world, port, arguments) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    sys.argv = [name, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    writer.send(printed.getvalue())


def loss(text: str) -> float:
    return float(re.search(r"loss ([\d.]+)", text).group(1))


@pytest.mark.parametrize(
    ("name", "share"), [("fsdp2.py", "holds 833 of 1633"), ("tensor_parallel.py", "holds 32 of 64")]
)
def test_sharded_models_learn_as_one_process_does(name, share):
    alone, together = run_example(name, 1)[0], run_example(name, 2)[0]
    assert abs(loss(alone) - loss(together)) < 1e-4, (alone, together)
    assert share in together, together


def test_a_mesh_learns_as_one_process_does():
    alone, together = run_example("mesh.py", 1)[0], run_example("mesh.py", 4, "--tensor-parallel", "2")[0]
    assert abs(loss(alone) - loss(together)) < 1e-4, (alone, together)
    assert "holds 256 of 1024" in together, together


def test_a_pipeline_learns_as_one_process_does():
    alone, together = run_example("pipeline.py", 1)[0], run_example("pipeline.py", 2)[1]
    assert abs(loss(alone) - loss(together)) < 1e-4, (alone, together)
    assert "2 of 4 layers" in together


def test_a_checkpoint_is_read_by_another_number_of_ranks(tmp_path):
    saved = run_example("checkpoint.py", 2, "--save", str(tmp_path / "state"))[0]
    loaded = run_example("checkpoint.py", 3, "--load", str(tmp_path / "state"))[0]
    assert saved == loaded and "mean output" in saved


def test_uneven_inputs_end_with_one_model():
    lines = run_example("uneven_inputs.py", 2)
    norms = {re.search(r"norm ([\d.]+)", line).group(1) for line in lines}
    assert len(norms) == 1 and "5 steps" in lines[0] and "8 steps" in lines[1], lines


@pytest.mark.parametrize("sync", ["async", "group"])
def test_ranks_at_their_own_pace_learn_one_model(sync):
    lines = run_example("own_pace.py", 2, "--sync", sync)
    errors = [float(value) for value in re.findall(r"error ([\d.]+)", "".join(lines))]
    assert len(errors) == 3 and errors[-1] < errors[0] / 2, lines
    assert any("240 steps" in line for line in lines) and any("60 steps" in line for line in lines), lines


def test_a_dtensor_computes_as_one_process_does():
    alone, together = run_example("dtensor.py", 1)[0], run_example("dtensor.py", 2)[0]
    value = re.compile(r"value ([\d.]+)")
    assert abs(float(value.search(alone).group(1)) - float(value.search(together).group(1))) < 1e-3, (alone, together)
    assert "holds 96 of 96" in alone and "holds 48 of 96" in together


# inductor compiles C++, which takes half a minute: `make test-torch`.
COMPILERS = ["aot_eager", *(["inductor"] if "RANVIER_TEST_LONG" in os.environ else [])]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_compiled_step_with_collectives_learns_as_one_process_does(compiler):
    arguments = ("--compiler", compiler)
    alone, together = run_example("compiled.py", 1, *arguments)[0], run_example("compiled.py", 2, *arguments)[0]
    assert abs(loss(alone) - loss(together)) < 1e-4, (alone, together)


def compiled(rank, world):
    from torch.distributed import _functional_collectives as functional

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(tensor):
        total = functional.all_reduce(tensor * 2, "sum", list(range(world)))
        return functional.all_gather_tensor(total, 0, list(range(world))) + 1

    expected = torch.full((4 * world,), 2.0 * world + 1)
    assert torch.equal(step(torch.ones(4)), expected)


def test_functional_collectives_run_under_compile():
    on_ranks(2, compiled)
