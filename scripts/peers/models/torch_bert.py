"""bert.py in PyTorch: eager, or with its loss under `torch.compile`. Adam is PyTorch's fused one."""

from __future__ import annotations

import start
import torch
import torch_start
from torch import Tensor, nn
from torch.nn import functional

PADDING = 0


class Block(nn.Module):
    """A layer of the encoder, which maps [batch, length, hidden] to the same shape."""

    def __init__(self, hidden: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.grow, self.shrink = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.first_norm, self.second_norm = (nn.LayerNorm(hidden, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def attention(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        dropout = self.dropout.p if self.training else 0.0
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return self.out(found.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.first_norm(x + self.dropout(self.attention(x, mask)))
        return self.second_norm(x + self.dropout(self.shrink(functional.gelu(self.grow(x)))))


class Bert(nn.Module):
    def __init__(
        self, vocabulary: int, hidden: int, layers: int, heads: int, inner: int, length: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.empty(length, hidden))
        self.norm, self.transform_norm = (nn.LayerNorm(hidden, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(hidden, heads, inner, dropout) for _ in range(layers))
        self.transform = nn.Linear(hidden, hidden)
        self.output_bias = nn.Parameter(torch.empty(vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        mask = torch.where(tokens == PADDING, -1e9, 0.0)[:, None, None, :]
        x = self.dropout(self.norm(self.words(tokens) + self.positions))
        for block in self.blocks:
            x = block(x, mask)
        x = self.transform_norm(functional.gelu(self.transform(x)))
        return functional.linear(x, self.words.weight, self.output_bias)


def main() -> None:
    parser = torch_start.options(__doc__)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    weights, given = start.read(arguments.start)
    vocabulary, hidden = weights["words/embeddings"].shape
    layers = len({name.split("/")[1] for name in weights if name.startswith("blocks/")})
    inner, length = weights["blocks/0/grow/kernel"].shape[1], weights["positions"].shape[0]
    model = Bert(vocabulary, hidden, layers, arguments.heads, inner, length, arguments.dropout)
    torch_start.load(model, {name.replace("attention/", ""): value for name, value in weights.items()})
    model.train(arguments.mode == "train")

    def loss_of(tokens: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
        losses = functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="none")
        return (losses * counted.flatten()).sum() / counted.sum()

    batches = [
        (torch.from_numpy(tokens), torch.from_numpy(labels).long(), torch.from_numpy(counted))
        for tokens, labels, counted in given
    ]
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, eps=1e-7, fused=True)
    torch_start.run(loss_of, optimizer, batches, arguments)


if __name__ == "__main__":
    main()
