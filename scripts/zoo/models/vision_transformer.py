"""vit-keras (Fausto Morales): a vision transformer, with TensorFlow Addons' LAMB optimizer, through `fit`."""

import tensorflow_addons as tfa
from job import fit, integers, normal, options
from vit_keras import vit

arguments = options()
model = vit.build_model(
    64, 8, 4, 192, 4, "ViT", 768, 10, activation="softmax", include_top=True, representation_size=None, dropout=0.1
)
fit(
    model,
    normal(64, 64, 64, 3),
    integers(10, 64),
    arguments,
    16,
    "sparse_categorical_crossentropy",
    tfa.optimizers.LAMB(1e-3),
)
