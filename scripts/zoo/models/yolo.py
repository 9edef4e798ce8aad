"""tf2-yolov4 (Sicara): the detector's forward pass."""

from job import batches, infer, normal, options, tf
from tf2_yolov4.anchors import YOLOV4_ANCHORS
from tf2_yolov4.model import YOLOv4

arguments = options()
model = YOLOv4((96, 96, 3), 20, YOLOV4_ANCHORS, training=True)
infer(
    lambda x: tf.concat([tf.reshape(each, [-1]) for each in model(x, training=False)], 0),
    batches(normal(8, 96, 96, 3), size=2),
    arguments,
)
