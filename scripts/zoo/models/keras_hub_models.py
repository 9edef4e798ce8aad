"""Models of `keras_hub`, on Keras 3, small configurations with random weights. The language models are trained by its own tasks."""

import keras
import keras_hub
import numpy as np
from job import batches, fit, infer, integers, normal, options, tf, train

BATCH, LENGTH, VOCABULARY = 8, 64, 5001
hub = keras_hub.models
ids = integers(VOCABULARY - 1, 4 * BATCH, LENGTH) + 1
mask = (np.arange(LENGTH) < integers(40, 4 * BATCH, 1) + 25).astype("int32")
labels = integers(10, 4 * BATCH)
images = normal(4 * BATCH, 64, 64, 3)
SIZES = {"vocabulary_size": VOCABULARY, "num_layers": 4, "hidden_dim": 256}
GROUPED = {"num_query_heads": 4, "num_key_value_heads": 2}


def language_model(task, backbone):
    """Trains or runs a causal language model: for each id it predicts the next id; padding has weight 0."""
    model = task(backbone=backbone, preprocessor=None)
    inputs = {"token_ids": ids, "padding_mask": mask}
    fit_or_infer(model, inputs, np.roll(ids, -1, 1), keras.optimizers.AdamW(1e-4), weights=mask)


def classifier(inputs, features, examples):
    """Trains or runs a classifier: one dense layer on `features`, a backbone's output."""
    fit_or_infer(keras.Model(inputs, keras.layers.Dense(10)(features)), examples, labels, metrics=["accuracy"])


def fit_or_infer(model, examples, answers, optimizer="adam", **more):
    if arguments.mode == "infer":
        names = list(examples)
        data = batches(*examples.values(), size=BATCH)
        infer(lambda *batch: model(dict(zip(names, batch)), training=False), data, arguments)
        return
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fit(model, examples, answers, arguments, BATCH, loss, optimizer, **more)


def bert():
    backbone = hub.BertBackbone(**SIZES, num_heads=4, intermediate_dim=1024, max_sequence_length=LENGTH)
    examples = {"token_ids": ids, "padding_mask": mask, "segment_ids": np.zeros_like(ids)}
    classifier(backbone.input, backbone.output["pooled_output"], examples)


def gpt2():
    backbone = hub.GPT2Backbone(**SIZES, num_heads=4, intermediate_dim=1024, max_sequence_length=LENGTH)
    language_model(hub.GPT2CausalLM, backbone)


def llama3():
    language_model(hub.Llama3CausalLM, hub.Llama3Backbone(**SIZES, **GROUPED, intermediate_dim=768))


def gemma3():
    attention = {"head_dim": 64, "use_sliding_window_attention": True, "sliding_window_size": 32}
    backbone = hub.Gemma3Backbone(**SIZES, **GROUPED, **attention, image_size=64, intermediate_dim=768, dtype="float32")
    language_model(hub.Gemma3CausalLM, backbone)


def mixtral():
    backbone = hub.MixtralBackbone(**SIZES, **GROUPED, intermediate_dim=512, num_experts=4, dtype="float32")
    language_model(hub.MixtralCausalLM, backbone)


def whisper():
    lengths = {"max_encoder_sequence_length": 128, "max_decoder_sequence_length": LENGTH}
    backbone = hub.WhisperBackbone(**SIZES, **lengths, num_heads=4, intermediate_dim=1024)

    def loss_of(sound, ids, mask):
        words = {"encoder_features": sound, "decoder_token_ids": ids, "decoder_padding_mask": mask}
        output = backbone(words, training=True)["decoder_sequence_output"]
        logits = backbone.token_embedding(output, reverse=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.roll(ids, -1, 1), logits)
        weights = tf.cast(mask, tf.float32)
        return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)

    data = batches(normal(4 * BATCH, 128, 80), ids, mask, size=BATCH)
    train(loss_of, lambda: backbone.trainable_variables, keras.optimizers.Adam(1e-4), data, arguments, clip=1.0)


def vit():
    backbone = hub.ViTBackbone(
        image_shape=(64, 64, 3), patch_size=8, num_layers=4, num_heads=4, hidden_dim=256, mlp_dim=1024, dropout_rate=0.1
    )
    classifier(backbone.input, backbone.output[:, 0], images)


def swin():
    backbone = hub.SwinTransformerBackbone(
        image_shape=(64, 64, 3), embed_dim=48, depths=(2, 2), num_heads=(2, 4), window_size=4, patch_size=4
    )
    classifier(backbone.input, keras.layers.GlobalAveragePooling1D()(backbone.output), images)


def segformer():
    encoder = hub.MiTBackbone(
        image_shape=(64, 64, 3),
        num_layers=4,
        hidden_dims=[32, 64, 96, 128],
        layerwise_depths=[2, 2, 2, 2],
        layerwise_num_heads=[1, 2, 3, 4],
        layerwise_sr_ratios=[8, 4, 2, 1],
        layerwise_patch_sizes=[7, 3, 3, 3],
        layerwise_strides=[4, 2, 2, 2],
        max_drop_path_rate=0.1,
    )
    backbone = hub.SegFormerBackbone(image_encoder=encoder, projection_filters=128)
    model = hub.SegFormerImageSegmenter(backbone=backbone, num_classes=5, preprocessor=None)
    answers = np.eye(5, dtype="float32")[integers(5, 4 * BATCH, 64, 64)]
    fit(model, images, answers, arguments, BATCH, keras.losses.CategoricalCrossentropy(from_logits=True))


MODELS = {model.__name__: model for model in (bert, gpt2, llama3, gemma3, mixtral, whisper, vit, swin, segformer)}
arguments = options(*MODELS)
MODELS[arguments.model]()
