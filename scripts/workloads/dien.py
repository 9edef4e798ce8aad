"""Deep Interest Evolution Network, which predicts a user's click on an item from earlier behaviour: a plain TensorFlow program.

Zhou et al. 2018, "Deep Interest Evolution Network for Click-Through Rate Prediction": embeddings of users, items and categories (18
each); an interest extractor, a GRU of 36 over the behaviours, trained with an auxiliary loss to tell the next behaviour from random
ones; attention of the item to the interests; AUGRU, a GRU whose update gate is scaled by the attention; a net of 200 and 80. Batch
64, history 50 (shorter ones padded), 50,000 items. Behaviour is drawn with a fixed seed: users with a few favourite categories, items
with Zipf's popularity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import steps
import tensorflow as tf
from distributed import Ranks, add_option

USERS, ITEMS, CATEGORIES, EXAMPLES = 5_000, 50_000, 500, 8_192


class AttentionalGruCell(tf.keras.layers.Layer):
    """AUGRU (section "Interest Evolving Layer"). inputs: [batch, units + 1]; the last column is the attention score."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = self.state_size = self.output_size = units
        self.gates = tf.keras.layers.Dense(2 * units, activation="sigmoid")
        self.candidate = tf.keras.layers.Dense(units, activation="tanh")

    def call(self, inputs: tf.Tensor, states: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        (state,) = states
        x, score = inputs[:, :-1], inputs[:, -1:]
        reset, update = tf.split(self.gates(tf.concat([x, state], axis=-1)), 2, axis=-1)
        candidate = self.candidate(tf.concat([x, reset * state], axis=-1))
        kept = (1.0 - score) * update  # as in the authors' code: high attention admits the new interest
        state = kept * state + (1.0 - kept) * candidate
        return state, (state,)


class InterestAttention(tf.keras.layers.Layer):
    """The item's attention to each interest, by a net of 80, 40 and 1: float32 [batch, history], with sum 1 over real behaviours."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.query = tf.keras.layers.Dense(units)
        self.activation = tf.keras.layers.PReLU()
        self.net = [
            tf.keras.layers.Dense(80, activation="sigmoid"),
            tf.keras.layers.Dense(40, activation="sigmoid"),
            tf.keras.layers.Dense(1),
        ]

    def call(self, item: tf.Tensor, interests: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        query = self.activation(self.query(item))[:, tf.newaxis]
        query = tf.tile(query, [1, tf.shape(interests)[1], 1])
        x = tf.concat([query, interests, query - interests, query * interests], axis=-1)
        for layer in self.net:
            x = layer(x)
        return tf.nn.softmax(tf.where(mask, x[..., 0], -1e9))


class Dien(tf.keras.Model):
    def __init__(self, embedding: int, units: int) -> None:
        super().__init__()
        self.users, self.items, self.categories = (
            tf.keras.layers.Embedding(count, embedding) for count in (USERS, ITEMS, CATEGORIES)
        )
        self.extractor = tf.keras.layers.GRU(units, return_sequences=True)
        self.attention = InterestAttention(units)
        self.evolution = tf.keras.layers.RNN(AttentionalGruCell(units))
        self.auxiliary = tf.keras.Sequential(
            [
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Dense(100, activation="sigmoid"),
                tf.keras.layers.Dense(50, activation="sigmoid"),
                tf.keras.layers.Dense(1),
            ]
        )
        self.net = tf.keras.Sequential(
            [
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Dense(200),
                tf.keras.layers.PReLU(),
                tf.keras.layers.Dense(80),
                tf.keras.layers.PReLU(),
                tf.keras.layers.Dense(1),
            ]
        )

    def behaviour(self, items: tf.Tensor, categories: tf.Tensor) -> tf.Tensor:
        return tf.concat([self.items(items), self.categories(categories)], axis=-1)

    def call(self, example: dict[str, tf.Tensor], training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """(logits of a click, [batch]; the auxiliary loss, a scalar, 0 if not training)."""
        item = self.behaviour(example["item"], example["category"])
        history = self.behaviour(example["items"], example["categories"])
        mask = tf.sequence_mask(example["length"], example["items"].shape[1])
        interests = self.extractor(history, mask=mask, training=training)
        auxiliary = tf.constant(0.0)
        if training:
            others = self.behaviour(example["other_items"], example["other_categories"])
            auxiliary = self.auxiliary_loss(interests[:, :-1], history[:, 1:], others[:, 1:], mask[:, 1:])
        scores = self.attention(item, interests, mask)
        final = self.evolution(tf.concat([interests, scores[..., tf.newaxis]], axis=-1), mask=mask, training=training)
        total = tf.reduce_sum(history * tf.cast(mask, tf.float32)[..., tf.newaxis], axis=1)
        x = tf.concat([self.users(example["user"]), item, total, item * total, final], axis=-1)
        return self.net(x, training=training)[:, 0], auxiliary

    def auxiliary_loss(
        self, interests: tf.Tensor, followed: tf.Tensor, others: tf.Tensor, mask: tf.Tensor
    ) -> tf.Tensor:
        """The loss of telling the behaviour that followed each interest from a random one; mean over real behaviours."""
        real = self.auxiliary(tf.concat([interests, followed], axis=-1), training=True)[..., 0]
        false = self.auxiliary(tf.concat([interests, others], axis=-1), training=True)[..., 0]
        losses = tf.nn.softplus(-real) + tf.nn.softplus(false)
        weights = tf.cast(mask, tf.float32)
        return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)


@dataclass(frozen=True)
class Catalogue:
    """The items. category_of: [items]. members: the items of each category, most popular first. chances: their probability within
    it."""

    category_of: np.ndarray
    members: list[np.ndarray]
    chances: list[np.ndarray]

    @classmethod
    def draw(cls, random: np.random.Generator) -> Catalogue:
        popularity = 1.0 / np.arange(1, ITEMS + 1)  # Zipf's law
        category_of = random.integers(0, CATEGORIES, ITEMS)
        category_of[:CATEGORIES] = np.arange(CATEGORIES)  # none is empty
        members = [np.flatnonzero(category_of == category) for category in range(CATEGORIES)]
        chances = [popularity[items] / popularity[items].sum() for items in members]
        return cls(category_of.astype(np.int32), members, chances)


def behaviours(batch: int, history: int, seed: int, order: int) -> tf.data.Dataset:
    """A dataset of (example, label): int32 tensors by name, and float32 [batch], 1 if the user clicked. order: seed of the order."""
    random = np.random.default_rng(seed)
    catalogue = Catalogue.draw(random)
    favourites = random.integers(0, CATEGORIES, [USERS, 4])
    users = random.integers(0, USERS, EXAMPLES).astype(np.int32)
    popularity = 1.0 / np.arange(1, ITEMS + 1)
    anything = random.choice(ITEMS, [EXAMPLES, history + 1], p=popularity / popularity.sum()).astype(np.int32)
    liked = np.empty([EXAMPLES, history + 1], np.int32)
    for row, user in enumerate(users):
        # Interests drift: one favourite category after the other; some behaviours are random.
        turns = np.sort(random.integers(0, 4, history + 1))
        for turn, category in enumerate(favourites[user]):
            here = np.flatnonzero(turns == turn)
            liked[row, here] = random.choice(catalogue.members[category], len(here), p=catalogue.chances[category])
    liked = np.where(random.random(liked.shape) < 0.2, anything, liked)
    length = random.integers(history // 5, history + 1, EXAMPLES).astype(np.int32)
    label = (random.random(EXAMPLES) < 0.5).astype(np.float32)
    item = np.where(label > 0.5, liked[:, -1], random.permutation(liked[:, -1]))
    items = np.where(np.arange(history) < length[:, np.newaxis], liked[:, :-1], 0)
    others = anything[:, 1:]
    example = {
        "user": users,
        "item": item,
        "category": catalogue.category_of[item],
        "items": items,
        "categories": catalogue.category_of[items],
        "other_items": others,
        "other_categories": catalogue.category_of[others],
        "length": length,
    }
    examples = tf.data.Dataset.from_tensor_slices((example, label))
    return steps.feed(examples.shuffle(EXAMPLES, seed=order).repeat().batch(batch, drop_remainder=True))


def main() -> None:
    parser = steps.make_parser(__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--history", type=int, default=50)
    parser.add_argument("--embedding", type=int, default=18)
    parser.add_argument("--units", type=int, default=36)
    add_option(parser)
    arguments = parser.parse_args()

    ranks = Ranks(arguments.horovod)
    tf.keras.utils.set_random_seed(arguments.seed)
    model = Dien(arguments.embedding, arguments.units)
    optimizer = tf.keras.optimizers.Adam(1e-3)

    def click_loss(logits: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))

    def loss_of(example: dict[str, tf.Tensor], label: tf.Tensor) -> tf.Tensor:
        logits, auxiliary = model(example, training=True)
        return click_loss(logits, label) + auxiliary

    # XLA compiles no collective: with several ranks it gets the forward and the backward pass, not the whole step.
    training_loss = tf.function(loss_of, jit_compile=True) if arguments.xla and arguments.horovod else loss_of

    @tf.function(jit_compile=(arguments.xla and not arguments.horovod) or None)
    def train(example: dict[str, tf.Tensor], label: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = training_loss(example, label)
        gradients = ranks.gradients(tape, loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function(jit_compile=arguments.xla or None)
    def infer(example: dict[str, tf.Tensor], label: tf.Tensor) -> tf.Tensor:
        logits, _ = model(example)
        return click_loss(logits, label)

    # Every rank draws the same users and items, and takes them in an order of its own.
    batches = behaviours(arguments.batch, arguments.history, arguments.seed, arguments.seed + ranks.rank)
    steps.run(
        train if arguments.mode == "train" else infer,
        batches,
        arguments,
        ranks,
        lambda: ranks.broadcast(model, optimizer),
    )


if __name__ == "__main__":
    main()
