#!/usr/bin/env python3
"""Records gradients of the demo models for the tests of the coders: 65,536 floats of each, little-endian f32 in gzip.

usage: record_gradients.py FOLDER   (made with torch 2.13.0: .venv/bin/python tests/data/record_gradients.py tests/data)

The models are those of integrations/trainer/model.cc, trained on Fashion-MNIST (Debian's dataset-fashion-mnist) as the
demo trains them, 32 samples a step; what is kept of step 200 is 16 runs of 4,096 neighbours, evenly spaced over all
parameters in the order of the layers.
"""

import gzip
import pathlib
import sys

import numpy
import torch
from torch import nn

IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
LABELS = pathlib.Path("/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz")
STEPS, BATCH, RATE = 200, 32, 0.05
RUNS, RUN = 16, 4096


def idx(path: pathlib.Path, header: int) -> numpy.ndarray:
    return numpy.frombuffer(gzip.open(path).read(), numpy.uint8, offset=header)


def models() -> dict[str, nn.Module]:
    return {
        "cnn": nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 120), nn.ReLU(), nn.Linear(120, 10)),
        "mlp": nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
    }


def gradient(model: nn.Module) -> numpy.ndarray:
    images = torch.from_numpy(idx(IMAGES, 16).reshape(-1, 1, 28, 28) / numpy.float32(255))
    labels = torch.from_numpy(idx(LABELS, 8).astype(numpy.int64))
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    order = torch.randperm(len(labels))
    for step in range(STEPS):
        batch = order[step * BATCH : (step + 1) * BATCH]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    return numpy.concatenate([p.grad.numpy().ravel() for p in model.parameters()])


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    torch.manual_seed(1)
    torch.set_num_threads(1)
    for name, model in models().items():
        values = gradient(model)
        starts = numpy.linspace(0, len(values) - RUN, RUNS).astype(int)
        kept = numpy.concatenate([values[start : start + RUN] for start in starts])
        packed = gzip.compress(kept.astype("<f4").tobytes(), 9, mtime=0)
        (pathlib.Path(sys.argv[1]) / f"{name}_gradient.f32.gz").write_bytes(packed)
        print(f"{name}: {numpy.mean(kept == 0):.0%} zeros, {len(packed)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
