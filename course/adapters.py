"""What the checks ask of a student's code: tensors in, tensors out. The only module of course/ that knows its names.

The functions work as they are for the untouched starter. Who moves or renames classes edits this file and nothing else.
Weights arrive as dictionaries with Hugging Face's names. `probability` is a dropout rate: 0 outside training, and 1
drops everything, which shows where dropout stands without any chance.
"""
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from minbert import attention as attention_module
from minbert.adamw import AdamW
from minbert.bert import AddNorm, BertModel, Embeddings, Layer
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from minbert.weights import our_name
from tasks import losses
from tasks.heads import combine
from tasks.options import SentimentOptions, SimilarityOptions
from tasks.pooling import max_pool, mean_pool
from tasks.sentiment import Sentiment
from tasks.similarity import Similarity
from tasks.task import Batch, Outputs
from training.mixing import probabilities, tasks_at
from training.surgery import pcgrad_weights

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _config(hidden: int, heads: int, wide: int, vocabulary: int = 50, layers: int = 2, positions: int = 32
            ) -> BertConfig:
    return BertConfig(vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                      intermediate_size=wide, max_position_embeddings=positions)


def _ready(module: nn.Module, weights: dict[str, Tensor], probability: float) -> nn.Module:
    """Give a module its weights, in their precision, and one dropout rate. It trains if the rate is not 0."""
    module.to(next(iter(weights.values())).dtype)
    module.load_state_dict(weights)
    for part in module.modules():
        if hasattr(part, "dropout_p"):
            part.dropout_p = probability  # type: ignore[assignment]
        if isinstance(part, nn.Dropout):
            part.p = probability
    return module.train(probability > 0)


def token_ids(vocabulary: Sequence[str], text: str) -> list[int]:
    """Return the ids of a text, without special tokens."""
    return BertTokenizer([*TOKENS, *vocabulary]).ids([text])[0]


def sequence(vocabulary: Sequence[str], first: str, second: str | None, max_length: int) -> tuple[list[int], list[int]]:
    """Return input ids and token type ids of one sentence or a pair, with special tokens."""
    tokenizer = BertTokenizer([*TOKENS, *vocabulary])
    ids = [tokenizer.ids([text])[0] for text in (first, second) if text is not None]
    return tokenizer.build(ids[0], ids[1] if second is not None else None, max_length)


def embed(weights: dict[str, Tensor], ids: Tensor, types: Tensor, probability: float) -> Tensor:
    """Return embeddings [B, T, H] of input ids and token type ids [B, T]."""
    vocabulary, hidden = weights["word_embeddings.weight"].shape
    positions = len(weights["position_embeddings.weight"])
    module = _ready(Embeddings(_config(hidden, 1, 8, vocabulary, positions=positions)), weights, probability)
    return module(ids, types, torch.arange(ids.shape[1]).expand_as(ids))


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, probability: float) -> Tensor:
    """Return the context [B, A, T, D] of queries, keys and values [B, A, T, D]. mask: bool [B, T], False at padding."""
    return attention_module.attention(query, key, value, mask, probability)[0]


def self_attention(weights: dict[str, Tensor], heads: int, hidden: Tensor, mask: Tensor, probability: float,
                   training: bool) -> Tensor:
    """Return the context [B, T, H] of hidden states [B, T, H]. training: the module is in training mode."""
    module = _ready(attention_module.SelfAttention(_config(hidden.shape[-1], heads, 8)), weights, probability)
    return module.train(training)(hidden, mask)[0]


def add_norm(weights: dict[str, Tensor], x: Tensor, residual: Tensor, probability: float) -> Tensor:
    """Return LayerNorm(residual + dropout(dense(x)))."""
    return _ready(AddNorm(x.shape[-1], _config(residual.shape[-1], 1, 8)), weights, probability)(x, residual)


def layer(weights: dict[str, Tensor], heads: int, hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the output [B, T, H] of an encoder layer, outside training."""
    wide = len(weights["intermediate.dense.weight"])
    return _ready(Layer(_config(hidden.shape[-1], heads, wide)), weights, 0.0)(hidden, mask)[0]


def model(weights: dict[str, Tensor], heads: int, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
    """Return last_hidden_state [B, T, H] and pooler_output [B, H] of a whole encoder, outside training."""
    vocabulary, hidden = weights["embeddings.word_embeddings.weight"].shape
    layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
    wide = len(weights["encoder.layer.0.intermediate.dense.weight"])
    positions = len(weights["embeddings.position_embeddings.weight"])
    encoder = _ready(BertModel(_config(hidden, heads, wide, vocabulary, layers, positions)), weights, 0.0)
    output = encoder(ids, mask, types)
    return output.last_hidden_state, output.pooler_output


def parameter_name(name: str) -> str:
    """Return the name of a tensor of a weight file in the model."""
    return our_name(name)


def optimizer(parameters: list[dict], **settings) -> torch.optim.Optimizer:
    """Make AdamW for groups of parameters. settings: lr, betas, eps, weight_decay, correct_bias."""
    return AdamW(parameters, **settings)


def classify(vectors: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, probability: float
             ) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits [B, C], the loss and the predicted classes [B] of a linear sentence classifier.

    Args:
        vectors: of sentences, [B, H].
        weight, bias: of its linear layer, [C, H] and [C].
        labels: [B].
        probability: of dropout.
    """
    classes, hidden = weight.shape
    task = Sentiment("sst", BertTokenizer(TOKENS), _config(hidden, 1, 8), SentimentOptions(classes=classes).filled())
    _ready(task, {"head.1.weight": weight, "head.1.bias": bias}, probability)
    task.encode = lambda encoder, tokens: (vectors, vectors.new_zeros(()))  # type: ignore[method-assign]
    batch = Batch(None, labels, torch.arange(len(vectors)))  # type: ignore[arg-type]
    outputs = task.outputs(None, batch)  # type: ignore[arg-type]
    return outputs.values, task.criterion(outputs, batch), task.predict_from(outputs)


def pool(hidden: Tensor, mask: Tensor, kind: str) -> Tensor:
    """Return sentence vectors [B, H] of hidden states [B, T, H]. kind: mean or max."""
    return {"mean": mean_pool, "max": max_pool}[kind](hidden, mask)


def features(u: Tensor, v: Tensor, parts: tuple[str, ...]) -> Tensor:
    """Return the features of pairs of vectors [B, H]. parts: u, v, |u-v|, u*v, cos."""
    return combine(u, v, parts)


def similarity(u: Tensor, v: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and the predicted scores from 0 to 5 of a cosine that is trained by mean squared error."""
    task = Similarity("sts", BertTokenizer(TOKENS), _config(u.shape[1], 1, 8), SimilarityOptions().filled())
    vectors = torch.cat([u, v])
    task.encode = lambda encoder, tokens: (vectors, vectors.new_zeros(()))  # type: ignore[method-assign]
    batch = Batch(None, labels, torch.arange(len(vectors)))  # type: ignore[arg-type]
    outputs: Outputs = task.outputs(None, batch)  # type: ignore[arg-type]
    return task.criterion(outputs, batch), task.predict_from(outputs)


def triplet(anchors: Tensor, positives: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Return the triplet loss of vectors [B, H]."""
    return losses.triplet(anchors, positives, negatives, margin)


def contrast(anchors: Tensor, candidates: Tensor, anchor_groups: Tensor, candidate_groups: Tensor, temperature: float
             ) -> Tensor:
    """Return InfoNCE. Candidate i belongs to anchor i. Equal groups are equal sentences."""
    return losses.info_nce(anchors, candidates, anchor_groups, candidate_groups, temperature)


def shares(sizes: dict[str, int], kind: str, temperature: float, progress: float, cap: dict[str, int]) -> list[float]:
    """Return each task's share of the draws, in the order of `sizes`."""
    found = probabilities(sizes, kind, temperature, progress, cap)
    return [found[name] for name in sizes]


def order(batches: dict[str, int], kind: str, steps: int) -> list[list[str]]:
    """Return the tasks of each step, for the mixings cycle, sequential and in_turn. batches: in one pass, of each."""
    return [tasks_at(step, steps, batches, batches, kind, "seed", per_epoch=sum(batches.values()))
            for step in range(steps)]


def surgery(gradients: Tensor, seed: int) -> Tensor:
    """Return PCGrad's combination [N] of the tasks' gradients [K, N]."""
    weights = pcgrad_weights(gradients @ gradients.T, torch.Generator().manual_seed(seed))
    return weights @ gradients
