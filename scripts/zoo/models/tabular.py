"""TabNet (Somshubra Majumdar): sequential attention over the features of a table, through `fit`."""

import tabnet
from job import fit, integers, normal, options

arguments = options()
model = tabnet.TabNetClassifier(
    None, num_classes=10, feature_dim=32, output_dim=16, num_features=64, num_decision_steps=4
)
fit(
    model, normal(2048, 64), integers(10, 2048), arguments, 256, "sparse_categorical_crossentropy", metrics=["accuracy"]
)
