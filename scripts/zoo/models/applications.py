"""Networks of `tf.keras.applications`, through `fit`."""

from job import batches, fit, infer, integers, normal, options, tf

NETWORKS = {
    "efficientnet": tf.keras.applications.EfficientNetB0,
    "resnet": tf.keras.applications.ResNet50V2,
    "mobilenet": tf.keras.applications.MobileNetV3Small,
    "convnext": tf.keras.applications.ConvNeXtTiny,
    "densenet": tf.keras.applications.DenseNet121,
    "xception": tf.keras.applications.Xception,
    "nasnet": tf.keras.applications.NASNetMobile,
}
arguments = options(*NETWORKS)
side = 96 if arguments.model == "xception" else 64
model = NETWORKS[arguments.model](weights=None, input_shape=(side, side, 3), classes=10)
images, labels = normal(64, side, side, 3), integers(10, 64)
if arguments.mode == "infer":
    infer(lambda x: model(x, training=False), batches(images, size=16), arguments)
else:
    fit(model, images, labels, arguments, 16, "sparse_categorical_crossentropy", metrics=["accuracy"])
