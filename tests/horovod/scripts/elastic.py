"""Trains in a job whose ranks may leave and join (hvd.elastic.run). elastic.py FOLDER STEPS [SECONDS]

HOSTS is the file that horovodrun's discovery script prints. Once STEPS steps were taken in the first world, rank 0 writes NEXT_HOSTS
there, or, if there is none, rank 1 is killed. The job ends STEPS steps after another world began. The ranks pause for SECONDS at most
after their fourteenth step in this process, until their kernels are there.

Writes FOLDER/PID.json: rank, digest of the weights, and for each step [loss, size of the world, whether it ran stitched, digest of
the weights after it]. Which arm a step ran in is asked of the plugin, if it is there.
"""

import hashlib
import json
import os
import pathlib
import signal
import sys
import types

import horovod.tensorflow as hvd
import model
import numpy as np
import tensorflow as tf

COMMIT_STEPS = 10


def elastic_model():
    """(loss function, variables, optimizer) with the same values in each process."""
    tf.keras.utils.set_random_seed(7)
    weights = tf.Variable(tf.random.normal([model.WIDTH, model.WIDTH], seed=1) * 0.1)
    scale, offset = tf.Variable(tf.ones([model.WIDTH])), tf.Variable(tf.zeros([model.WIDTH]))
    variables = [weights, scale, offset]
    optimizer = tf.keras.optimizers.legacy.SGD(0.05, momentum=0.9)
    optimizer._create_all_weights(variables)

    def loss_of(x):
        hidden = tf.nn.gelu(tf.matmul(x, weights))
        mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
        y = (hidden - mean) * tf.math.rsqrt(variance + 1e-6) * scale + offset
        return tf.reduce_mean(tf.square(y - x))

    return loss_of, variables, optimizer


def stitched_steps(function):
    """(number of steps of the function in the stitched arm in this process, whether its phase is the stitched one).

    In the arm's other phases a process traces or verifies, and TensorFlow's own values are used. (0, False) without the plugin.
    """
    job = getattr(sys.modules.get("stitchfleet.plugin.entry.activation"), "JOB", None)
    programs = [program for program in job.programs if program.given_name == function] if job else []
    count = sum(program.steps_by_arm[1] for program in programs)
    return count, any(program.phase.value == "stitched" for program in programs)


def digest(variables):
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(variable.numpy()).tobytes() for variable in variables)
    ).hexdigest()


def main():
    folder, steps, pause = model.arguments()
    hosts, next_hosts = pathlib.Path(os.environ["HOSTS"]), os.environ.get("NEXT_HOSTS")
    hvd.init()
    loss_of, variables, optimizer = elastic_model()

    @tf.function
    def train(x, reduces):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        if reduces:
            tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    # As in Horovod's own examples, a process that has just come takes a step without collectives, for what that creates.
    everything = [*variables, *optimizer.variables()]
    before = [tf.identity(variable) for variable in everything]
    train(tf.constant(model.data(hvd.rank())), False)
    for variable, value in zip(everything, before):
        variable.assign(value)

    log, taken = {}, [0]

    @hvd.elastic.run
    def run(state):
        if state.first_size == 0:
            state.first_size = hvd.size()
        x = tf.constant(model.data(hvd.rank()))
        while state.together < steps:
            if taken[0] == 14:
                model.rest(pause)
            taken[0] += 1
            is_first = hvd.size() == state.first_size
            if is_first and state.step == steps and hvd.rank() == hvd.size() - 1:
                if next_hosts:
                    hosts.write_text(next_hosts)
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            before_it, _ = stitched_steps("train")
            loss = float(train(x, True))
            count, is_stitched = stitched_steps("train")
            log[state.step] = [loss, hvd.size(), int(is_stitched and count > before_it), digest(variables)]
            state.step += 1
            state.together += not is_first
            if state.step % COMMIT_STEPS == 0:
                state.commit()

    # TensorFlowState broadcasts no variables when eager code restores them (horovod 0.28.1); this one needs their owners only
    owner = types.SimpleNamespace(variables=variables)
    run(hvd.elastic.TensorFlowKerasState(owner, optimizer, step=0, together=0, first_size=0))
    found = {"rank": hvd.rank(), "pid": os.getpid(), "weights": digest(everything), "steps": log}
    pathlib.Path(folder, f"{os.getpid()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
