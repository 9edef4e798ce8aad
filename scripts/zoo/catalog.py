"""The zoo's models, a row each, in two environments: TensorFlow 2.15.1 with Keras 2, which most packages need, and the newest
TensorFlow with Keras 3."""

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
KERAS_3: Final = Environment(
    "keras3",
    requires=(
        *("tensorflow-cpu==2.21.0", "keras==3.15.1", "scipy", "pandas<3", "scikit-learn", "matplotlib", "seaborn"),
        *("networkx", "regex", "rich", "tqdm", "requests", "tokenizers", "sentencepiece", "loguru", "plotly"),
        *("omegaconf", "typeguard", "nibabel"),
    ),
    packages=(
        *("keras-hub==0.32.0", "kagglehub==0.3.13", "keras-rs==0.4.0", "bayesflow==2.0.12", "kimm==0.2.5"),
        *("medicai==0.0.4", "kerasfactory==0.1.1", "keras-tcn==3.5.7"),
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


def _each(
    script: str,
    package: str,
    author: str,
    *names: str,
    infer: tuple[str, ...] = (),
    environment: Environment = KERAS_2,
    prefix: str = "",
) -> dict[str, Model]:
    """The models of one script, by name; those of `infer` also as inference. prefix: of the names, for a script that runs in two
    environments."""
    jobs = {f"{script}-{name}" if name else script: (name,) * bool(name) for name in names}
    jobs |= {f"{script}-{name}-infer": (name, "--mode", "infer") for name in infer}
    return {prefix + job: Model(package, author, script, words, environment) for job, words in jobs.items()}


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
    **_each(
        *("keras_hub_models", "keras-hub", "Keras team"),
        *("bert", "gpt2", "llama3", "gemma3", "mixtral", "whisper", "vit", "swin", "segformer"),
        infer=("bert", "gemma3"),
        environment=KERAS_3,
    ),
    **_each(
        *("applications", "Keras", "Keras team", "efficientnet", "mobilenet", "convnext"),
        infer=("mobilenet",),
        environment=KERAS_3,
        prefix="keras3-",
    ),
    **_each("keras_rs_models", "keras-rs", "Keras team", "cross", "dot", environment=KERAS_3),
    **_each("bayesflow_models", "bayesflow", "BayesFlow", "coupling", "matching", environment=KERAS_3),
    **_each("kimm_models", "kimm", "Hongyu Chiu", "ghostnet", "mobilevit", "convnext", environment=KERAS_3),
    **_each("medicai_models", "medicai", "Mohammed Innat", "swin", "unet", environment=KERAS_3),
    **_each("kerasfactory_models", "kerasfactory", "Unicolab", "tsmixer", "timemixer", environment=KERAS_3),
    **_each("tcn_model", "keras-tcn", "Philippe Remy", "", environment=KERAS_3, prefix="keras3-"),
}
