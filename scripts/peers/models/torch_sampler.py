"""sampler.py in PyTorch: eager, or its whole step under `torch.compile`, which unrolls the loop."""

from __future__ import annotations

import start
import torch
import torch_start
from torch import Tensor
from torch.nn import functional

LEAPS = 10


def main() -> None:
    arguments = torch_start.options(__doc__, modes=("train",)).parse_args()
    given, draws = start.read(arguments.start)
    design, labels = torch.from_numpy(given["design"]), torch.from_numpy(given["labels"])
    transposed = design.T.contiguous()
    batches = [(torch.from_numpy(momentum), torch.from_numpy(chance)) for momentum, chance in draws]
    position, size = torch.zeros_like(batches[0][0]), torch.tensor(0.02)

    def energy(at: Tensor) -> Tensor:
        logits = at @ transposed
        return (functional.softplus(logits) - labels * logits).sum(1) + 0.5 * (at**2).sum(1)

    def slope(at: Tensor) -> Tensor:
        return (torch.sigmoid(at @ transposed) - labels) @ design + at

    def sample(momentum: Tensor, chance: Tensor) -> Tensor:
        at, speed = position, momentum - 0.5 * size * slope(position)
        for _ in range(LEAPS - 1):
            at = at + size * speed
            speed = speed - size * slope(at)
        at = at + size * speed
        speed = speed - 0.5 * size * slope(at)
        before, after = energy(position), energy(at)
        accepted = torch.log(chance) < before - after + 0.5 * (momentum**2 - speed**2).sum(1)
        rate = accepted.float().mean()
        result = torch.where(accepted, after, before).mean()
        position.copy_(torch.where(accepted[:, None], at, position))
        size.mul_(torch.exp(0.02 * (rate - 0.8)))
        return result

    step = torch_start.compiled(sample, arguments)
    with torch.no_grad():
        start.run(step, batches, arguments)


if __name__ == "__main__":
    main()
