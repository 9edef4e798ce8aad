"""resnet.py in JAX: one jitted step, whose weights and optimizer state are donated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import start

CLASSES = 36
WEIGHT_DECAY = 1e-4
_EPSILON, _MOMENTUM = 1e-3, 0.99  # Keras' BatchNormalization
_STATISTICS = ("moving_mean", "moving_variance")


def main() -> None:
    arguments = start.options(__doc__).parse_args()
    given, batches = start.read(arguments.start)
    weights = {name: jnp.asarray(value) for name, value in given.items() if not name.endswith(_STATISTICS)}
    moving = {name: jnp.asarray(value) for name, value in given.items() if name.endswith(_STATISTICS)}
    is_decayed = {name: name.endswith("convolution/kernel") for name in weights}
    optimizer = optax.chain(
        optax.add_decayed_weights(2 * WEIGHT_DECAY, is_decayed), optax.sgd(0.05, momentum=0.9, nesterov=True)
    )

    def forward(weights: Any, moving: Any, pictures: Any, training: bool) -> tuple[Any, Any]:
        """(scores, [batch, CLASSES]; the moving statistics afterwards). pictures: uint8 [batch, side, side, 3]."""
        after = dict(moving)

        def normalized(x: Any, name: str, stride: int = 1) -> Any:
            kernel, name = weights[f"{name}/convolution/kernel"], f"{name}/normalization"
            x = jax.lax.conv_general_dilated(
                x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            mean, variance = (moving[f"{name}/{statistic}"] for statistic in _STATISTICS)
            if training:
                found = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
                for statistic, value in zip(_STATISTICS, found):
                    before = moving[f"{name}/{statistic}"]
                    after[f"{name}/{statistic}"] = before * _MOMENTUM + value * (1 - _MOMENTUM)
                mean, variance = found
            scale = weights[f"{name}/gamma"] * jax.lax.rsqrt(variance + _EPSILON)
            return (x - mean) * scale + weights[f"{name}/beta"]

        x = pictures.astype(jnp.float32) / 127.5 - 1.0
        x = jax.nn.relu(normalized(x, "stem", 2))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for block in range(8):
            name, stride = f"blocks/{block}", 2 if block and block % 2 == 0 else 1
            kept = x if stride == 1 else normalized(x, f"{name}/shortcut", stride)
            x = normalized(jax.nn.relu(normalized(x, f"{name}/first", stride)), f"{name}/second")
            x = jax.nn.relu(x + kept)
        return jnp.mean(x, (1, 2)) @ weights["scores/kernel"] + weights["scores/bias"], after

    def loss_of(weights: Any, moving: Any, pictures: Any, letters: Any) -> tuple[Any, Any]:
        scores, after = forward(weights, moving, pictures, True)
        labels = optax.smooth_labels(jax.nn.one_hot(letters, CLASSES), 0.1)
        return jnp.mean(optax.softmax_cross_entropy(scores, labels)), after

    def train(state: Any, *batch: Any) -> Any:
        weights, moving, momenta = state
        (loss, moving), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, moving, *batch)
        changes, momenta = optimizer.update(gradients, momenta, weights)
        return (optax.apply_updates(weights, changes), moving, momenta), loss

    @jax.jit
    def infer(weights: Any, moving: Any, pictures: Any, letters: Any) -> Any:
        return jnp.mean(jnp.max(jax.nn.log_softmax(forward(weights, moving, pictures, False)[0]), -1))

    if arguments.mode == "train":
        state = weights, moving, optimizer.init(weights)
        start.run_state(jax.jit(train, donate_argnums=0), state, start.on_device(batches), arguments)
    else:
        start.run(lambda *batch: infer(weights, moving, *batch), start.on_device(batches), arguments)


if __name__ == "__main__":
    main()
