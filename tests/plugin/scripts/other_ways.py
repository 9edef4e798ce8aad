"""Ways to run a graph that stay plain: XLA's functions, partial_run, a queue runner's thread. Prints the results."""

import json

import tensorflow as tf

v1 = tf.compat.v1
compiled = tf.function(lambda x: tf.reduce_sum(tf.exp(x) * tf.tanh(x)), jit_compile=True)
seen = [float(compiled(tf.ones([4]) * i)) for i in range(10)]
concrete = compiled.get_concrete_function(tf.TensorSpec([4]))
seen += [float(concrete(tf.ones([4]) * i)) for i in range(10)]
with tf.Graph().as_default():
    a, b = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    one = tf.exp(a) * 2.0
    two = tf.tanh(one * b)
    queue = v1.FIFOQueue(2, tf.float32, shapes=[])
    runner = v1.train.QueueRunner(queue, [queue.enqueue(tf.exp(0.5))])
    taken = tf.tanh(queue.dequeue()) * 2.0
    with v1.Session() as session:
        for i in range(10):
            handle = session.partial_run_setup([one, two], [a, b])
            seen.append(float(session.partial_run(handle, one, {a: i * 0.1})))
            seen.append(float(session.partial_run(handle, two, {b: 2.0})))
        coordinator = v1.train.Coordinator()
        threads = runner.create_threads(session, coordinator, start=True)
        seen += [float(session.run(taken)) for _ in range(20)]
        coordinator.request_stop()
        session.run(queue.close(cancel_pending_enqueues=True))
        coordinator.join(threads)
print(json.dumps(seen))
