"""bert.py in JAX: one jitted step, whose weights and optimizer state are donated. Dropout draws from XLA's own generator ("rbg"),
which is faster on a CPU than JAX's default, threefry."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import start

PADDING = 0
OUT_OF_SIGHT = -1e9


def main() -> None:
    parser = start.options(__doc__)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()
    jax.config.update("jax_default_prng_impl", "rbg")
    given, batches = start.read(arguments.start)
    weights = {name: jnp.asarray(value) for name, value in given.items()}
    layers = len({name.split("/")[1] for name in given if name.startswith("blocks/")})
    optimizer = optax.adam(1e-4, eps=1e-7)

    def forward(weights: Any, tokens: Any, key: Any) -> Any:
        """tokens, [batch, length], to logits, [batch, length, vocabulary]. key: for dropout; None: none."""
        keys = iter(jax.random.split(key, 1 + 3 * layers) if key is not None else [None] * (1 + 3 * layers))

        def dropped(x: Any) -> Any:
            key = next(keys)
            if key is None or not arguments.dropout:
                return x
            keep = 1.0 - arguments.dropout
            return jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep, 0.0)

        def dense(x: Any, name: str) -> Any:
            return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

        def normalized(x: Any, name: str) -> Any:
            mean = jnp.mean(x, -1, keepdims=True)
            variance = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
            return (x - mean) * jax.lax.rsqrt(variance + 1e-12) * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

        def split(x: Any) -> Any:
            return x.reshape(*x.shape[:2], arguments.heads, -1).transpose(0, 2, 1, 3)

        def attention(x: Any, name: str) -> Any:
            query, key, value = (split(dense(x, f"{name}/{part}")) for part in ("query", "key", "value"))
            scores = query @ key.swapaxes(-1, -2) / jnp.sqrt(float(query.shape[-1])) + mask
            merged = dropped(jax.nn.softmax(scores)) @ value
            return dense(merged.transpose(0, 2, 1, 3).reshape(x.shape), f"{name}/out")

        mask = jnp.where(tokens == PADDING, OUT_OF_SIGHT, 0.0)[:, None, None, :]
        x = dropped(normalized(weights["words/embeddings"][tokens] + weights["positions"], "norm"))
        for layer in range(layers):
            name = f"blocks/{layer}"
            x = normalized(x + dropped(attention(x, f"{name}/attention")), f"{name}/first_norm")
            inner = jax.nn.gelu(dense(x, f"{name}/grow"), approximate=False)
            x = normalized(x + dropped(dense(inner, f"{name}/shrink")), f"{name}/second_norm")
        x = normalized(jax.nn.gelu(dense(x, "transform"), approximate=False), "transform_norm")
        return x @ weights["words/embeddings"].T + weights["output_bias"]

    def loss_of(weights: Any, tokens: Any, labels: Any, counted: Any, key: Any) -> Any:
        losses = optax.softmax_cross_entropy_with_integer_labels(forward(weights, tokens, key), labels)
        return jnp.sum(losses * counted) / jnp.sum(counted)

    def train(state: Any, *batch: Any) -> Any:
        weights, moments, key = state
        key, now = jax.random.split(key)
        loss, gradients = jax.value_and_grad(loss_of)(weights, *batch, now)
        changes, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(weights, changes), moments, key), loss

    if arguments.mode == "train":
        start.run_state(
            jax.jit(train, donate_argnums=0),
            (weights, optimizer.init(weights), jax.random.key(arguments.seed)),
            start.on_device(batches),
            arguments,
        )
    else:
        infer = jax.jit(lambda weights, *batch: loss_of(weights, *batch, None))
        start.run(lambda *batch: infer(weights, *batch), start.on_device(batches), arguments)


if __name__ == "__main__":
    main()
