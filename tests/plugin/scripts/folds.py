"""Folds of a cross-validation: for each a cleared session, the same seed and a new model; dropout by Keras' layer, and by a rate that
is annealed as a Python float, which makes a trace for each rate."""

import json

import tensorflow as tf

layers = tf.keras.layers
x, y = tf.random.stateless_normal([64, 8], [1, 2]), tf.random.stateless_normal([64, 1], [3, 4])
folds = []
for _ in range(3):
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(100)
    model = tf.keras.Sequential([layers.Dense(16, activation="gelu"), layers.Dropout(0.2), layers.Dense(1)])
    model.compile("adam", "mse")
    history = model.fit(x, y, epochs=6, batch_size=16, verbose=0)
    optimizer = tf.keras.optimizers.Adam(1e-3)

    @tf.function
    def step(rate, model=model, optimizer=optimizer):
        with tf.GradientTape() as tape:
            hidden = tf.nn.dropout(tf.nn.gelu(x) * 2.0 + tf.tanh(x), rate)
            loss = tf.reduce_mean(tf.square(model(hidden, training=True) - y))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    annealed = [float(step(0.4 - 0.1 * (number // 12))) for number in range(48)]
    folds.append([*map(float, history.history["loss"]), *annealed])
assert folds[0] == folds[1] == folds[2], "the folds differ"
print(json.dumps(folds))
