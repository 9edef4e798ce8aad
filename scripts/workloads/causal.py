"""A causal language model on full windows of text: a plain TensorFlow program.

A decoder of 4 layers of 256 (4 heads, inner 1024, GELU) that predicts the next word of the Python standard library's text, batch 8 x
128, vocabulary 8,000, dropout 0.1, Keras' Adam: Radford et al. 2018, "Improving Language Understanding by Generative
Pre-Training", at a smaller size. Half of the scores in each attention are masked.
"""

from __future__ import annotations

import steps
import tensorflow as tf
import text
from language_lengths import LanguageModel


def main() -> None:
    parser = steps.make_parser(__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(arguments.seed)
    model = LanguageModel(
        arguments.vocabulary,
        arguments.hidden,
        arguments.layers,
        arguments.heads,
        arguments.inner,
        arguments.length,
        arguments.dropout,
    )
    optimizer = tf.keras.optimizers.Adam(3e-4)

    def loss_of(windows: tf.Tensor, training: bool) -> tf.Tensor:
        logits = model(windows[:, :-1], training=training)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(windows[:, 1:], logits))

    @tf.function(jit_compile=arguments.xla or None)
    def train(windows: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(windows, training=True)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function(jit_compile=arguments.xla or None)
    def infer(windows: tf.Tensor) -> tf.Tensor:
        return loss_of(windows, training=False)

    rows = tf.data.Dataset.from_tensor_slices(text.token_windows(arguments.vocabulary, arguments.length + 1))
    batches = rows.shuffle(20_000, seed=arguments.seed).repeat().batch(arguments.batch, drop_remainder=True)
    step = train if arguments.mode == "train" else infer
    steps.run(step, steps.feed(batches.map(lambda windows: (windows,))), arguments)


if __name__ == "__main__":
    main()
