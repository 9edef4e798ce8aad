"""Models of Hugging Face's `transformers`, small configurations."""

import numpy as np
import transformers as hf
from job import batches, infer, integers, normal, options, tf, train

BATCH = 8
arguments = options("bert", "gpt2", "t5", "vit", "deberta", "funnel", "convnext", "wav2vec2")
ids = integers(5000, 4 * BATCH, 64) + 1
lengths = integers(40, 4 * BATCH, 1) + 25
mask = (np.arange(64) < lengths).astype("int32")
labels = integers(2, 4 * BATCH)
images = normal(4 * BATCH, 3, 64, 64)
SMALL = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
text, named = (ids, mask, labels), ("input_ids", "attention_mask", "labels")

if arguments.model == "bert":
    model = hf.TFBertForSequenceClassification(hf.BertConfig(**SMALL))
elif arguments.model == "gpt2":
    model = hf.TFGPT2LMHeadModel(hf.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=5001))
    text = (ids, mask, ids)
elif arguments.model == "t5":
    model = hf.TFT5ForConditionalGeneration(
        hf.T5Config(d_model=256, d_ff=512, num_layers=3, num_heads=4, vocab_size=5001, decoder_start_token_id=0)
    )
    text = (ids, mask, ids[:, :32])
elif arguments.model == "deberta":
    model = hf.TFDebertaV2ForSequenceClassification(
        hf.DebertaV2Config(
            **SMALL, relative_attention=True, position_buckets=64, pos_att_type=["p2c", "c2p"], vocab_size=5001
        )
    )
elif arguments.model == "funnel":
    model = hf.TFFunnelForSequenceClassification(
        hf.FunnelConfig(
            block_sizes=[2, 2], d_model=256, n_head=4, d_head=64, d_inner=1024, vocab_size=5001, num_decoder_layers=1
        )
    )
elif arguments.model == "vit":
    model = hf.TFViTForImageClassification(hf.ViTConfig(**SMALL, image_size=64, patch_size=8))
    text, named = (images, labels), ("pixel_values", "labels")
elif arguments.model == "convnext":
    config = hf.ConvNextConfig(depths=[2, 2, 4, 2], hidden_sizes=[32, 64, 128, 256], image_size=64)
    model = hf.TFConvNextForImageClassification(config)
    text, named = (images, labels), ("pixel_values", "labels")
else:
    config = hf.Wav2Vec2Config(**SMALL, conv_dim=(64,) * 7, num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=4)
    model = hf.TFWav2Vec2Model(config)
    text, named = (normal(4 * BATCH, 8000),), ("input_values",)

data = batches(*text, size=BATCH // 4 if arguments.model == "wav2vec2" else BATCH)


def loss_of(*batch):
    output = model(**dict(zip(named, batch)), training=True)
    loss = getattr(output, "loss", None)
    return tf.reduce_mean(tf.square(output.last_hidden_state) if loss is None else loss)


if arguments.mode == "infer":
    infer(lambda *batch: model(**dict(zip(named[:-1] or named, batch)))[0], data, arguments)
else:
    train(loss_of, lambda: model.trainable_variables, tf.keras.optimizers.Adam(1e-4), data, arguments, clip=1.0)
