"""Children that multiprocessing forks, each of which imports TensorFlow and trains. Prints nothing."""

import multiprocessing


def train(steps):
    import tensorflow as tf

    weights = tf.Variable(tf.ones([8, 8]))

    @tf.function
    def child_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.exp(-weights) * tf.tanh(x) * 2.0)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    for _ in range(steps):
        child_step(tf.ones([8, 8]))


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=train, args=(20 + number,)) for number in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
