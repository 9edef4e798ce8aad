"""keras-cv-attention-models (leondgarse): vision networks, through `fit`."""

import keras_cv_attention_models as kecam
from job import batches, fit, infer, integers, normal, options

NETWORKS = {
    "coatnet": lambda **about: kecam.coatnet.CoAtNet0(**about),
    "efficientformer": lambda **about: kecam.efficientformer.EfficientFormerV2S0(**about),
    "mobilevit": lambda **about: kecam.mobilevit.MobileViT_XXS(**about),
    "yolov8": lambda **about: kecam.yolov8.YOLOV8_N(**about),
    "levit": lambda **about: kecam.levit.LeViT128S(**about),
}
arguments = options(*NETWORKS)
images, labels = normal(32, 64, 64, 3), integers(10, 32)
model = NETWORKS[arguments.model](input_shape=(64, 64, 3), num_classes=10, pretrained=None)
if arguments.mode == "infer" or arguments.model == "yolov8":
    infer(lambda x: model(x, training=False), batches(images, size=8), arguments)
else:
    fit(model, images, labels, arguments, 8, "sparse_categorical_crossentropy", metrics=["accuracy"])
