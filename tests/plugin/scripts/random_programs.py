"""Random TensorFlow programs, run in turn; prints for each what its steps returned and what its variables held, as JSON.

random_programs.py FIRST COUNT STEPS SECONDS: the programs of the seeds FIRST to FIRST + COUNT - 1. After 12 steps, and after 24 for
the shapes that came late, the job pauses for SECONDS at most.

A program is a tf.function of a batch (whose size, and for some programs length, changes from step to step), positions and the
step's number. It draws operators over the values it has so far: element-wise ones, broadcasts, reduces, softmax and its like, shapes
computed from shapes, slices, gathers, scatters, matmuls, conds and whiles that nest, calls of other functions, asserts, reads and
writes of variables in the middle, and in half of the programs the gradient of all that with an update. What decides a branch or a
`where` is exact (it comes from the inputs by operators that do not round), so that rounding can change results by rounding alone;
values are kept within bounds for the same reason.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from resting import rest

WIDTH = 8
LIMIT = 6.0
BATCHES, LENGTHS = (3, 5, 8), (4, 6, 9)


class Value:
    """A tensor [batch or 1, length or 1, WIDTH or 1]; `bound` of its absolute values; `exact`: made without rounding."""

    def __init__(self, tensor, bound, exact=False):
        self.tensor, self.bound, self.exact = tensor, bound, exact


class Writer:
    """Draws a program's operators. The same draws happen at each trace: all from one generator that is made anew."""

    def __init__(self, seed, variables, counter, positions):
        self.draw = np.random.default_rng(seed)
        self.variables, self.counter, self.positions = variables, counter, positions

    def pick(self, values):
        return values[self.draw.integers(len(values))]

    def bounded(self, tensor, bound):
        if bound <= LIMIT:
            return Value(tensor, bound)
        return Value(LIMIT * tf.tanh(tensor / LIMIT), LIMIT)

    def unary(self, v):
        x = v.tensor
        kind = self.draw.integers(12)
        if kind == 0:
            return Value(tf.tanh(x), 1.0)
        if kind == 1:
            return Value(tf.nn.gelu(x), v.bound)
        if kind == 2:
            return Value(tf.sigmoid(x), 1.0)
        if kind == 3:
            return self.bounded(tf.exp(tf.minimum(x, 1.0)), 2.8)
        if kind == 4:
            return self.bounded(tf.square(x), v.bound**2)
        if kind == 5:
            return Value(-x, v.bound, v.exact)
        if kind == 6:
            return Value(tf.nn.relu(x), v.bound, v.exact)
        if kind == 7:
            return Value(tf.math.rsqrt(tf.abs(x) + 1.0), 1.0)
        if kind == 8:
            return Value(tf.math.log1p(tf.abs(x)), v.bound)
        if kind == 9:
            return Value(tf.math.erf(x), 1.0)
        if kind == 10:
            return Value(tf.cast(tf.cast(x, tf.bfloat16) * 0.5, tf.float32), v.bound)
        return Value(tf.math.softplus(x), v.bound + 1)

    def binary(self, v, w):
        x, y = v.tensor, w.tensor
        kind = self.draw.integers(7)
        if kind == 0:
            return self.bounded(x + y, v.bound + w.bound)
        if kind == 1:
            return self.bounded(x * y, v.bound * w.bound)
        if kind == 2:
            return self.bounded(x - y, v.bound + w.bound)
        if kind == 3:
            return Value(tf.maximum(x, y), max(v.bound, w.bound), v.exact and w.exact)
        if kind == 4:
            return Value(tf.minimum(x, y), max(v.bound, w.bound), v.exact and w.exact)
        if kind == 5:
            return Value(x / (1.0 + tf.abs(y)), v.bound)
        return self.bounded(tf.math.squared_difference(x, y), (v.bound + w.bound) ** 2)

    def select(self, values):
        exact = [v for v in values if v.exact]
        v, w, a, b = self.pick(exact), self.pick(exact), self.pick(values), self.pick(values)
        return Value(tf.where(v.tensor > w.tensor, a.tensor, b.tensor), max(a.bound, b.bound), a.exact and b.exact)

    def row(self, v):
        """Reduces, and what is made of them."""
        x, axis = v.tensor, int(self.draw.integers(3))
        kind = self.draw.integers(8)
        if kind == 0:
            return Value(tf.reduce_mean(x, axis, keepdims=True), v.bound)
        if kind == 1:
            return self.bounded(tf.reduce_sum(x, axis, keepdims=True), 1e9)
        if kind == 2:
            return Value(tf.reduce_max(x, axis, keepdims=True), v.bound, v.exact)
        if kind == 3:
            return Value(tf.reduce_min(x, [0, 2], keepdims=True), v.bound, v.exact)
        if kind == 4:
            return Value(tf.nn.softmax(x, axis), 1.0)
        if kind == 5:
            return Value(tf.reduce_logsumexp(x, axis, keepdims=True), v.bound + 4)
        if kind == 6:
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            return self.bounded((x - mean) * tf.math.rsqrt(variance + 0.1), 2 * v.bound)
        return Value(x * tf.math.rsqrt(tf.reduce_sum(tf.square(x), -1, keepdims=True) + 0.1), 1.0)

    def shaped(self, v, values):
        """Moves of data. The extents stay batch, length, WIDTH or 1."""
        x = v.tensor
        kind = self.draw.integers(11)
        if kind == 0:
            moved = tf.reverse(x, [int(self.draw.integers(3))])
        elif kind == 1:
            shape = tf.shape(x)
            moved = tf.reshape(tf.tanh(tf.reshape(x, [shape[0] * shape[1], shape[2]])), shape)
            return Value(moved, 1.0)
        elif kind == 2:
            moved = tf.concat([x[:, :, 1:], x[:, :, :1]], 2)
        elif kind == 3:
            moved = tf.pad(x[:, :-1], [[0, 0], [1, 0], [0, 0]])
        elif kind == 4:
            moved = tf.transpose(tf.abs(tf.transpose(x, [2, 0, 1])), [1, 2, 0])
        elif kind == 5:
            moved = tf.gather(x, tf.math.floormod(self.positions, tf.shape(x)[1]), axis=1)[:, : tf.shape(x)[1]]
        elif kind == 6:
            moved = tf.add_n(tf.unstack(tf.stack([x, 0.5 * x]))) * 0.5
        elif kind == 7:
            left, right = tf.split(tf.broadcast_to(x, tf.shape(x + tf.zeros([WIDTH]))), 2, 2)
            moved = tf.concat([right, left], 2)
        elif kind == 8:
            return self.at_positions(v)
        elif kind == 9:
            return self.resized(v)
        else:
            marks = tf.one_hot(tf.math.floormod(self.positions, WIDTH), WIDTH)
            moved = x + 0.25 * tf.reduce_sum(marks, 0)
            return self.bounded(moved, v.bound + 4)
        return Value(moved, v.bound, v.exact and kind in (0, 2, 3))

    def at_positions(self, v):
        """Rows gathered at vectors of positions, and scattered back there, several to some."""
        shape = tf.shape(v.tensor)
        at = tf.stack([self.positions % shape[0], self.positions % shape[1]], 1)
        rows = tf.gather_nd(v.tensor, at)
        return self.bounded(v.tensor + tf.scatter_nd(at, 0.25 * tf.tanh(rows), shape), v.bound + 0.25 * max(LENGTHS))

    def resized(self, v):
        """Each row as a small image, made larger and perhaps smaller again."""
        wide = v.tensor + tf.zeros([WIDTH])
        method = ("nearest", "bilinear")[self.draw.integers(2)]
        height, width = (int(extent) for extent in self.draw.integers(2, 7, size=2))
        image = tf.reshape(wide, [-1, 2, WIDTH // 2, 1])
        large = tf.tanh(tf.image.resize(image, [height, width], method))
        small = tf.image.resize(large, [2, WIDTH // 2], "bilinear" if self.draw.integers(2) else "nearest")
        return Value(tf.reshape(small, tf.shape(wide)), 1.0)

    def nested(self, values, depth):
        """A cond, a while or a call whose body draws operators of its own."""
        v, w = self.pick(values), self.pick(values)
        shape = tf.broadcast_dynamic_shape(tf.shape(v.tensor), tf.shape(w.tensor))
        start = tf.broadcast_to(v.tensor, shape)
        kind = self.draw.integers(3)
        seeds = self.draw.integers(1 << 30, size=2)

        def body(seed, x):
            inner = Writer(seed, self.variables, self.counter, self.positions)
            inside = [Value(x, LIMIT), w, *[value for value in values if value.exact]]
            made = inner.draw_some(inside, 3, depth + 1)[-1].tensor
            return tf.tanh(x + tf.reduce_mean(made) + 0.0 * tf.reduce_sum(w.tensor))

        if kind == 0:
            modulus, rest_ = int(self.draw.integers(2, 4)), int(self.draw.integers(2))
            chosen = tf.cond(
                tf.equal(self.counter % modulus, rest_),
                lambda: body(seeds[0], start),
                lambda: body(seeds[1], start),
            )
            return Value(chosen, 1.0)
        if kind == 1:
            turns = self.counter % 3
            x = tf.while_loop(
                lambda i, x: i < turns,
                lambda i, x: (i + 1, body(seeds[0], x)),
                [0, start],
                shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, None, None])],
            )[1]
            return Value(tf.reshape(x, shape), max(1.0, v.bound))
        return Value(tf.function(lambda x: body(seeds[0], x), autograph=False)(start), 1.0)

    def variable(self, values):
        """A read, or a write in the middle; who reads later sees it."""
        variable = self.variables[self.draw.integers(2)]
        kind = self.draw.integers(4)
        if kind == 0:
            v = self.pick(values)
            change = tf.reduce_mean(tf.tanh(v.tensor), [0, 1])
            variable.assign(0.9 * variable + 0.1 * tf.broadcast_to(change, [WIDTH]))
        elif kind == 1:
            v = self.pick(values)
            checked = tf.debugging.assert_less(tf.reduce_max(tf.abs(v.tensor)), 1e6)
            with tf.control_dependencies([checked] if checked is not None else []):
                variable.assign_add(tf.fill([WIDTH], 0.001))
        return Value(tf.tanh(variable.read_value())[None, None], 1.0)

    def table(self, v):
        """Rows of a table by position, and the table's own update by scatter."""
        table = self.variables[2]
        rows = tf.gather(table, self.positions)
        if self.draw.integers(2):
            table.scatter_sub(tf.IndexedSlices(0.01 * tf.tanh(rows), self.positions))
        return self.bounded(v.tensor + tf.reduce_mean(rows, 0), v.bound + 2)

    def product(self, v):
        wide = v.tensor + tf.zeros([WIDTH])
        return self.bounded(tf.einsum("bld,de->ble", wide, self.variables[3]), 4 * v.bound)

    def draw_some(self, values, count, depth=0):
        values = list(values)
        for _ in range(count):
            kind = self.draw.integers(16)
            v = self.pick(values)
            if kind < 4:
                made = self.unary(v)
            elif kind < 7:
                made = self.binary(v, self.pick(values))
            elif kind < 10:
                made = self.row(v)
            elif kind < 12:
                made = self.shaped(v, values)
            elif kind == 12:
                made = self.select(values)
            elif kind == 13:
                made = self.nested(values, depth) if depth < 2 else self.unary(v)
            elif kind == 14:
                made = self.variable(values) if depth == 0 else self.binary(v, self.pick(values))
            else:
                made = (self.table(v) if self.draw.integers(2) else self.product(v)) if depth == 0 else self.row(v)
            values.append(made)
        return values


class Program:
    """One random training function, its variables and what it returned."""

    def __init__(self, seed):
        self.seed = seed
        draw = np.random.default_rng(seed)
        self.count, self.trains = int(draw.integers(6, 30)), bool(draw.integers(2))
        self.lengths_change, self.batches_change = bool(draw.integers(2)), bool(draw.integers(2))
        self.variables = [
            tf.Variable(tf.random.stateless_normal(shape, [seed, number]) * 0.4)
            for number, shape in enumerate(([WIDTH], [WIDTH], [12, WIDTH], [WIDTH, WIDTH]))
        ]
        unknown = [tf.TensorSpec([None, None, WIDTH]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]

        def step(x, positions, counter):
            with tf.GradientTape() as tape:
                writer = Writer(seed, self.variables, counter, positions)
                halves = tf.round(x * 2.0) * 0.5
                inputs = [Value(x, 5.0, exact=True), Value(halves, 5.0, exact=True)]
                values = writer.draw_some(inputs, self.count)
                loss = tf.add_n([tf.reduce_mean(value.tensor) for value in values])
            if self.trains:
                for variable, gradient in zip(self.variables, tape.gradient(loss, self.variables)):
                    if isinstance(gradient, tf.IndexedSlices):
                        variable.scatter_sub(tf.IndexedSlices(0.01 * tf.tanh(gradient.values), gradient.indices))
                    elif gradient is not None:
                        variable.assign_sub(0.01 * tf.tanh(gradient))
            return loss, values[-1].tensor, values[len(values) // 2].tensor

        step.__name__ = f"step_{seed}"
        self.step = tf.function(step, input_signature=unknown if draw.integers(2) else None, autograph=False)

    def run(self, number):
        batch = BATCHES[number % 3] if self.batches_change else BATCHES[0]
        length = LENGTHS[number // 2 % 3] if self.lengths_change else LENGTHS[0]
        x = tf.random.stateless_normal([batch, length, WIDTH], [self.seed, number])
        positions = tf.random.stateless_uniform([length], [self.seed, number], maxval=12, dtype=tf.int32)
        return self.step(x, positions, tf.constant(number))


def facts(tensor):
    """A sum in which each element has a weight of its own, and the largest absolute value."""
    flat = tensor.numpy().astype(np.float64).ravel()
    return [float(flat @ np.cos(np.arange(flat.size))), float(np.abs(flat).max(initial=0.0))]


def main():
    first, count, steps, pause = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    programs = [Program(seed) for seed in range(first, first + count)]
    results = {program.seed: [] for program in programs}
    for number in range(steps):
        if number in (12, 24):
            rest(pause)
        for program in programs:
            results[program.seed].append([fact for tensor in program.run(number) for fact in facts(tensor)])
    for program in programs:
        results[program.seed].append([fact for variable in program.variables for fact in facts(variable)])
    print(json.dumps(results))


main()
