"""The adapters of minbert/everything.py beside this folder, as a student would edit them."""
import torch
from torch.nn.functional import dropout

from minbert import everything as mine

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _known(vocabulary):
    return {token: number for number, token in enumerate([*SPECIAL, *vocabulary])}


def token_ids(vocabulary, text):
    return mine.numbers(text, _known(vocabulary))


def sequence(vocabulary, first, second, max_length):
    known = _known(vocabulary)
    ids = [None if text is None else mine.numbers(text, known) for text in (first, second)]
    return mine.join(*ids, max_length, known)


def embed(weights, ids, types, probability):
    return mine.look_up(weights, ids, types, probability)


def attention(query, key, value, mask, probability):
    turned = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return mine.attend(*turned, mask, probability).transpose(1, 2)


def self_attention(weights, heads, hidden, mask, probability, training):
    return mine.look_around(weights, heads, hidden, mask, probability, training)


def add_norm(weights, x, residual, probability):
    return mine.join_in(weights, "", x, residual, probability)


def layer(weights, heads, hidden, mask):
    return mine.block(weights, heads, hidden, mask)


def model(weights, heads, ids, mask, types):
    return mine.read(weights, heads, ids, mask, types)


def parameter_name(name):
    return mine.plain_name(name)


def optimizer(parameters, **settings):
    return mine.Stepper(parameters, **settings)


def classify(vectors, weight, bias, labels, probability):
    logits = mine.lin({"x.weight": weight, "x.bias": bias}, "x", dropout(vectors, probability))
    return logits, mine.cross_entropy(logits, labels), logits.argmax(1)


def pool(hidden, mask, kind):
    return mine.squash(hidden, mask, kind)


def features(u, v, parts):
    known = {"u": u, "v": v, "|u-v|": (u - v).abs(), "u*v": u * v, "cos": mine.cosine(u, v)[:, None]}
    return torch.cat([known[part] for part in parts], 1)


def similarity(u, v, labels):
    cosines = mine.cosine(u, v)
    return ((cosines - labels / 5) ** 2).mean(), 5 * cosines.clamp(0, 1)


def triplet(anchors, positives, negatives, margin):
    return mine.far(anchors, positives, negatives, margin)


def contrast(anchors, candidates, anchor_groups, candidate_groups, temperature):
    return mine.contrastive(anchors, candidates, anchor_groups, candidate_groups, temperature)


def shares(sizes, kind, temperature, progress, cap):
    return mine.portions(sizes, kind, temperature, progress, cap)


def order(batches, kind, steps):
    return mine.plan(batches, kind, steps)


def surgery(gradients, seed):
    return mine.make_peace(gradients, seed)
