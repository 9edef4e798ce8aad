"""VoxelMorph (Dalca and others): registration of volumes with a dense displacement field, through `fit`."""

import inspect
import os

os.environ["VXM_BACKEND"] = os.environ["NEURITE_BACKEND"] = "tensorflow"
inspect.getargspec = lambda function: inspect.getfullargspec(function)[:4]  # Python 3.11 has it no more
import numpy as np
import voxelmorph as vxm
from job import fit, normal, options, tf

arguments = options()
shape = (32, 32, 32)
model = vxm.networks.VxmDense(shape, [[8, 16, 16], [16, 16, 16, 8, 8]], int_steps=5)
volumes = normal(8, *shape, 1)
zero = np.zeros([8, *shape, 3], np.float32)
losses = [vxm.losses.MSE().loss, vxm.losses.Grad("l2").loss]
fit(
    model,
    [volumes, volumes[::-1].copy()],
    [volumes[::-1].copy(), zero],
    arguments,
    1,
    losses,
    tf.keras.optimizers.Adam(1e-4),
)
