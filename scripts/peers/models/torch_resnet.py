"""resnet.py in PyTorch, channels last: eager, or with its loss under `torch.compile`.

TensorFlow pads a convolution of stride 2 by one more at the end than at the start; PyTorch's operators pad both sides alike, so that
each of these has an explicit padding before it here.
"""

from __future__ import annotations

import start
import torch
import torch_start
from torch import Tensor, nn
from torch.nn import functional

WEIGHT_DECAY = 1e-4


class Normalized(nn.Module):
    """A convolution without bias, and batch normalization with Keras' constants."""

    def __init__(self, channels: int, filters: int, size: int, stride: int = 1) -> None:
        super().__init__()
        around = max(size - stride, 0)
        self.padding = (around // 2, around - around // 2) * 2 if stride > 1 else None
        self.convolution = nn.Conv2d(
            channels, filters, size, stride, padding=0 if self.padding else size // 2, bias=False
        )
        self.normalization = nn.BatchNorm2d(filters, eps=1e-3, momentum=0.01)

    def forward(self, x: Tensor) -> Tensor:
        if self.padding and any(self.padding):
            x = functional.pad(x, self.padding)
        return self.normalization(self.convolution(x))


class Block(nn.Module):
    """A residual block: two convolutions of 3x3 and what they were given, through a convolution of 1x1 if the shape changes."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = Normalized(channels, filters, 3, stride)
        self.second = Normalized(filters, filters, 3)
        self.shortcut = Normalized(channels, filters, 1, stride) if stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        return functional.relu(self.second(functional.relu(self.first(x))) + kept)


class ResNet(nn.Module):
    """ResNet-18: uint8 [batch, side, side, 3] -> float32 [batch, classes]. width: channels of the first stage."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = Normalized(3, width, 7, 2)
        widths = [width << stage for stage in range(4) for _ in range(2)]
        strides = [2 if stage and not block else 1 for stage in range(4) for block in range(2)]
        self.blocks = nn.ModuleList(map(Block, [width, *widths], widths, strides))
        self.scores = nn.Linear(widths[-1], classes)

    def forward(self, pictures: Tensor) -> Tensor:
        x = pictures.permute(0, 3, 1, 2).float() / 127.5 - 1.0
        x = functional.relu(self.stem(x))
        x = functional.max_pool2d(functional.pad(x, (0, 1, 0, 1)), 3, 2)
        for block in self.blocks:
            x = block(x)
        return self.scores(x.mean((2, 3)))


def main() -> None:
    arguments = torch_start.options(__doc__).parse_args()
    weights, given = start.read(arguments.start)
    model = ResNet(weights["stem/convolution/kernel"].shape[-1], weights["scores/bias"].shape[0])
    torch_start.load(model, weights)
    model = model.to(memory_format=torch.channels_last).train(arguments.mode == "train")

    def loss_of(pictures: Tensor, letters: Tensor) -> Tensor:
        scores = model(pictures)
        if arguments.mode == "infer":
            return functional.log_softmax(scores, -1).amax(-1).mean()
        return functional.cross_entropy(scores, letters, label_smoothing=0.1)

    kernels = {id(each.weight) for each in model.modules() if isinstance(each, nn.Conv2d)}
    decayed = [each for each in model.parameters() if id(each) in kernels]
    others = [each for each in model.parameters() if id(each) not in kernels]
    groups = [{"params": decayed, "weight_decay": 2 * WEIGHT_DECAY}, {"params": others}]
    optimizer = torch.optim.SGD(groups, 0.05, momentum=0.9, nesterov=True, fused=True)
    batches = [(torch.from_numpy(pictures), torch.from_numpy(letters).long()) for pictures, letters in given]
    torch_start.run(loss_of, optimizer, batches, arguments)


if __name__ == "__main__":
    main()
