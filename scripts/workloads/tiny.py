"""Two hundred tiny clusters, each between operators that are not stitched, to measure the cost of launching a stitch op.

scripts/bench --workloads scripts/workloads/tiny.py --coverage prints "stitch ops ... ms in 201 launches", including their
computation.
"""

from __future__ import annotations

import itertools

import steps
import tensorflow as tf

CLUSTERS = 200


def main() -> None:
    arguments = steps.make_parser(__doc__, modes=("infer",)).parse_args()
    x = tf.random.stateless_normal([256], (arguments.seed, 0))

    @tf.function(jit_compile=arguments.xla or None)
    def step(x: tf.Tensor) -> tf.Tensor:
        for _ in range(CLUSTERS):
            x = tf.math.lgamma(tf.tanh(x * 1.01 + 0.1) + 1.5)
        return tf.reduce_sum(x)

    steps.run(step, ((x,) for _ in itertools.count()), arguments)


if __name__ == "__main__":
    main()
