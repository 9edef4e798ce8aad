"""sampler.py in JAX: one jitted step with a `fori_loop`, whose state is donated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import start

LEAPS = 10


def main() -> None:
    arguments = start.options(__doc__, modes=("train",)).parse_args()
    given, batches = start.read(arguments.start)
    design, labels = jnp.asarray(given["design"]), jnp.asarray(given["labels"])

    def energy(at: Any) -> Any:
        logits = at @ design.T
        return jnp.sum(jax.nn.softplus(logits) - labels * logits, 1) + 0.5 * jnp.sum(at**2, 1)

    def slope(at: Any) -> Any:
        return (jax.nn.sigmoid(at @ design.T) - labels) @ design + at

    def sample(state: Any, momentum: Any, chance: Any) -> Any:
        position, size = state

        def leap(_: Any, carried: Any) -> Any:
            at, speed = carried
            at = at + size * speed
            return at, speed - size * slope(at)

        at, speed = jax.lax.fori_loop(0, LEAPS - 1, leap, (position, momentum - 0.5 * size * slope(position)))
        at = at + size * speed
        speed = speed - 0.5 * size * slope(at)
        before, after = energy(position), energy(at)
        accepted = jnp.log(chance) < before - after + 0.5 * jnp.sum(momentum**2 - speed**2, 1)
        rate = jnp.mean(accepted.astype(jnp.float32))
        state = jnp.where(accepted[:, None], at, position), size * jnp.exp(0.02 * (rate - 0.8))
        return state, jnp.mean(jnp.where(accepted, after, before))

    state = jnp.zeros(batches[0][0].shape), jnp.float32(0.02)
    start.run_state(jax.jit(sample, donate_argnums=0), state, start.on_device(batches), arguments)


if __name__ == "__main__":
    main()
