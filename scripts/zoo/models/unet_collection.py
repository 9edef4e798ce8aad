"""keras-unet-collection: a U-Net with attention gates, and a U-Net of Swin transformers."""

from job import fit, integers, normal, options
from keras_unet_collection import models

arguments = options("attention", "swin")
if arguments.model == "attention":
    model = models.att_unet_2d((64, 64, 3), [16, 32, 64], n_labels=2, batch_norm=True, output_activation="Softmax")
else:
    model = models.swin_unet_2d(
        (64, 64, 3),
        32,
        2,
        depth=3,
        stack_num_down=2,
        stack_num_up=2,
        patch_size=(2, 2),
        num_heads=[2, 4, 4],
        window_size=[4, 4, 4],
        num_mlp=128,
        output_activation="Softmax",
    )
fit(model, normal(32, 64, 64, 3), integers(2, 32, 64, 64), arguments, 8, "sparse_categorical_crossentropy")
