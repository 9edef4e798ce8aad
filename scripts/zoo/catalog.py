"""The zoo's models, a row each. All run on one environment, TensorFlow 2.15.1 with Keras 2, which most packages need."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Final

from .environments import Environment

KERAS_2: Final = Environment(
    "keras2",
    requires=(
        "tensorflow-cpu==2.15.1",
        "tensorflow-estimator==2.15.0",
        "tf_keras==2.15.1",
        "numpy<2",
        "scipy<1.13",
        *("huggingface_hub<0.24", "tokenizers<0.20", "safetensors", "regex", "tqdm", "pyyaml", "filelock", "requests"),
        *("pandas", "scikit-learn", "scikit-image", "matplotlib", "opencv-python-headless", "librosa", "nibabel"),
        *("gin-config", "cloudpickle", "dm-tree", "deprecated", "decorator", "multipledispatch", "tabulate", "lark"),
        *("check_shapes", "terminaltables", "imgaug", "shapely", "editdistance", "pyclipper", "validators"),
        *(
            "essential_generators",
            "fonttools",
            "typeguard<3",
            "networkx",
            "gym==0.23.1",
            "pygame",
            "kt-legacy",
            "pystrum",
            "tf-slim",
        ),
    ),
    packages=(
        *("transformers==4.41.2", "deepctr==0.9.3", "tensorflow-recommenders==0.7.3", "tensorflow-ranking==0.5.5"),
        *("tf-agents==0.19.0", "spektral==1.3.1", "segmentation-models==1.0.1", "efficientnet==1.0.0"),
        *("keras-applications==1.0.8", "image-classifiers==1.0.0", "keras-unet-collection==0.1.13"),
        *("keras-cv-attention-models==1.4.3", "gpflow==2.9.2", "dm-sonnet==2.0.2", "tensorflow-probability==0.23.0"),
        *("deepxde==1.11.1", "larq==0.13.3", "tensorflow-lattice==2.0.13", "keras-tcn==3.5.0", "keras-ocr==0.9.3"),
        *("tensorflow-addons==0.23.0", "tensorflow-model-optimization==0.8.0", "kapre==0.3.7", "vit-keras==0.1.2"),
        *("tf2-yolov4==0.1.0", "nbeats-keras==1.8.0", "voxelmorph==0.2", "neurite==0.2", "tf-geometric==0.1.5"),
        *(
            "tabnet==0.1.6",
            "keras-self-attention==0.51.0",
            "scikit-optimize==0.10.2",
            "pyaml==24.12.1",
            "tf-sparse==0.0.17",
            "ogb-lite==0.0.3",
        ),
    ),
)
_FOLDER = pathlib.Path(__file__).with_name("models")


@dataclass(frozen=True)
class Model:
    """A job of the zoo. package, author: of the model. script: in models/. arguments: its words."""

    package: str
    author: str
    script: str
    arguments: tuple[str, ...] = ()
    environment: Environment = KERAS_2

    @property
    def path(self) -> pathlib.Path:
        return _FOLDER / f"{self.script}.py"


def _each(script: str, package: str, author: str, *names: str, infer: tuple[str, ...] = ()) -> dict[str, Model]:
    """The models of one script, by name; those of `infer` also as inference."""
    found = {
        f"{script}-{name}" if name else script: Model(package, author, script, (name,) * bool(name)) for name in names
    }
    for name in infer:
        found[f"{script}-{name}-infer"] = Model(package, author, script, (name, "--mode", "infer"))
    return found


MODELS: Final = {
    **_each(
        *("hugging_face", "transformers", "Hugging Face"),
        *("bert", "gpt2", "t5", "vit", "deberta", "funnel", "convnext", "wav2vec2"),
        infer=("bert", "vit"),
    ),
    **_each("applications", "Keras", "Keras team", "efficientnet", "mobilenet", infer=("efficientnet",)),
    **_each("deepctr_models", "deepctr", "Weichen Shen", "deepfm", "xdeepfm", "autoint", "dcn", "din"),
    **_each("recommenders", "tensorflow-recommenders", "Google", "cross", "towers"),
    **_each("ranking", "tensorflow-ranking", "Google", ""),
    **_each("agents", "tf-agents", "TF-Agents", "dqn", "sac", "ppo"),
    **_each("spektral_models", "spektral", "Daniele Grattarola", "gcn", "gat", "diffpool"),
    **_each("segmentation", "segmentation-models", "Pavel Iakubovskii", "unet", "fpn"),
    **_each("unet_collection", "keras-unet-collection", "Yingkai Sha", "attention", "swin"),
    **_each(
        *("attention_models", "keras-cv-attention-models", "leondgarse"),
        *("coatnet", "efficientformer", "mobilevit", "yolov8", "levit"),
    ),
    **_each("gpflow_models", "gpflow", "GPflow", "svgp", "gpr"),
    **_each("sonnet_models", "dm-sonnet", "DeepMind", "vqvae", "lstm"),
    **_each("probability", "tensorflow-probability", "Google", "flipout", "flow", "nuts"),
    **_each("physics", "deepxde", "Lu Lu", ""),
    **_each("larq_models", "larq", "Plumerai", ""),
    **_each("lattice_models", "tensorflow-lattice", "Google", ""),
    **_each("tcn_model", "keras-tcn", "Philippe Remy", ""),
    **_each("ocr", "keras-ocr", "Fausto Morales", ""),
    **_each("quantized", "tensorflow-model-optimization", "Google", ""),
    **_each("audio", "kapre", "Keunwoo Choi", ""),
    **_each("vision_transformer", "vit-keras", "Fausto Morales", ""),
    **_each("yolo", "tf2-yolov4", "Sicara", ""),
    **_each("forecasting", "nbeats-keras", "Philippe Remy", ""),
    **_each("registration", "voxelmorph", "Adrian Dalca", ""),
    **_each("tabular", "tabnet", "Somshubra Majumdar", ""),
    **_each("geometric", "tf-geometric", "Jun Hu", ""),
    **_each("self_attention", "keras-self-attention", "CyberZHG", ""),
}
