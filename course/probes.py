"""What the checks try: one function an exercise. Each returns named arrays, the same for every right solution.

Random weights are large (standard deviation 0.3, random LayerNorm gains): fresh weights of a BERT hide mistakes,
because its attention is then nearly uniform and its LayerNorm nearly the identity. Padding is compared nowhere: its
values have no meaning. A dropout rate of 1 drops everything, so it shows without any chance where dropout stands.
"""
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

Arrays = dict[str, np.ndarray]
PRECISION = torch.float64  # of the inputs and weights; course.mutations tries float32 too
# Absolute and relative. Float32 rounds these outputs by 2e-6 at most; the nearest two mistakes differ by 2.8e-4.
TOLERANCE = 1e-5
Probe = Callable[[ModuleType, int], Arrays]
PIECES = ["a", "##a", "b", "##b", "ab", "##ab", "abc", "##c", "c", "##bc", "cafe", "##fe", "ca", ",", ".", "[", "]",
          "!", "run", "##ning", "##n", "un", "##able", "sep", "他", "是", "e", "##e"]


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        return value.detach().to(torch.float64).numpy() if value.is_floating_point() else value.numpy()
    return np.asarray(value)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _normal(generator: torch.Generator, *shape: int, std: float = 1.0) -> Tensor:
    # Drawn in float64 whatever the precision: the same numbers, rounded.
    return (std * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(PRECISION)


def _norm(generator: torch.Generator, name: str, size: int) -> dict[str, Tensor]:
    return {f"{name}.weight": 1 + _normal(generator, size, std=0.3), f"{name}.bias": _normal(generator, size, std=0.3)}


def _linear(generator: torch.Generator, name: str, outputs: int, inputs: int) -> dict[str, Tensor]:
    return {f"{name}.weight": _normal(generator, outputs, inputs, std=0.3),
            f"{name}.bias": _normal(generator, outputs, std=0.3)}


def _attention_weights(generator: torch.Generator, hidden: int, prefix: str = "") -> dict[str, Tensor]:
    return {name: tensor for part in ("query", "key", "value")
            for name, tensor in _linear(generator, prefix + part, hidden, hidden).items()}


def _layer_weights(generator: torch.Generator, hidden: int, wide: int, prefix: str = "") -> dict[str, Tensor]:
    return {**_attention_weights(generator, hidden, f"{prefix}attention.self."),
            **_linear(generator, f"{prefix}attention.output.dense", hidden, hidden),
            **_norm(generator, f"{prefix}attention.output.LayerNorm", hidden),
            **_linear(generator, f"{prefix}intermediate.dense", wide, hidden),
            **_linear(generator, f"{prefix}output.dense", hidden, wide),
            **_norm(generator, f"{prefix}output.LayerNorm", hidden)}


def _embedding_weights(generator: torch.Generator, hidden: int, prefix: str = "") -> dict[str, Tensor]:
    return {f"{prefix}word_embeddings.weight": _normal(generator, 11, hidden),
            f"{prefix}position_embeddings.weight": _normal(generator, 9, hidden),
            f"{prefix}token_type_embeddings.weight": _normal(generator, 2, hidden),
            **_norm(generator, f"{prefix}LayerNorm", hidden)}


def _mask() -> Tensor:
    """Return a mask [2, 5]: the first sequence has three tokens, the second five."""
    return torch.arange(5) < torch.tensor([[3], [5]])


def tokens(adapters: ModuleType, seed: int) -> Arrays:
    """Cut words, clean text, build sequences."""
    texts = {"the longest piece first": "abc ab abab", "pieces inside a word have ##": "running aab",
             "a word that cannot be cut is unknown": "abz zab runnable", "punctuation stands alone": "ab,ab!.a",
             "lower case": "ABC Run", "accents": "café ábç", "Chinese characters stand alone": "ab他是c",
             "text makes no special token": "[SEP] a[SEP]b", "white space and control characters": "a\tb\u0000c\n ab",
             "nothing": "  "}
    result = {name: _array(adapters.token_ids(PIECES, text)) for name, text in texts.items()}
    for name, first, second, length in (("one sentence", "ab c", None, 16), ("a pair", "ab c", "run a", 16),
                                        ("one sentence that is cut", "a b c a b c", None, 5),
                                        ("a pair that is cut, the longer one first", "a b c a b c", "c a", 8)):
        ids, types = adapters.sequence(PIECES, first, second, length)
        result[name], result[f"{name}: token types"] = _array(ids), _array(types)
    return result


def embeddings(adapters: ModuleType, seed: int) -> Arrays:
    """Embed, and embed with everything dropped."""
    generator = _generator(seed)
    weights = _embedding_weights(generator, 6)
    ids, types = torch.tensor([[1, 4, 4, 7], [9, 0, 3, 4]]), torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    return {"output": _array(adapters.embed(weights, ids, types, 0.0)),
            "output if all is dropped": _array(adapters.embed(weights, ids, types, 1.0))}


def attention(adapters: ModuleType, seed: int) -> Arrays:
    """Attend with and without padding, with everything dropped, and back."""
    generator = _generator(seed)
    query, key, value = (_normal(generator, 2, 3, 5, 4).requires_grad_() for _ in range(3))
    mask = _mask()
    real = mask[:, None, :, None]
    whole = torch.ones(2, 5).bool()
    context = adapters.attention(query, key, value, mask, 0.0) * real
    loss = (context * torch.linspace(-1, 1, 4, dtype=PRECISION)).sum()
    gradients = torch.autograd.grad(loss, (query, key, value))
    return {"output": _array(context),
            "output without padding": _array(adapters.attention(query, key, value, whole, 0.0)),
            "output if all is dropped": _array(adapters.attention(query, key, value, mask, 1.0) * real),
            **{f"gradient of the {name}": _array(gradient * real)
               for name, gradient in zip(("query", "key", "value"), gradients, strict=True)}}


def heads(adapters: ModuleType, seed: int) -> Arrays:
    """Project, split, attend and merge; in training and in evaluation mode."""
    generator = _generator(seed)
    weights = _attention_weights(generator, 12)
    hidden, mask = _normal(generator, 2, 5, 12), _mask()
    real = mask[..., None]
    return {"output": _array(adapters.self_attention(weights, 3, hidden, mask, 0.0, False) * real),
            "output in evaluation, with a dropout rate of 1": _array(
                adapters.self_attention(weights, 3, hidden, mask, 1.0, False) * real),
            "output in training, with a dropout rate of 1": _array(
                adapters.self_attention(weights, 3, hidden, mask, 1.0, True) * real)}


def add_norm(adapters: ModuleType, seed: int) -> Arrays:
    """Add and norm, with and without dropout, and at the small values where eps shows."""
    generator = _generator(seed)
    weights = {**_linear(generator, "dense", 6, 6), **_norm(generator, "LayerNorm", 6)}
    x, residual = _normal(generator, 2, 4, 6), _normal(generator, 2, 4, 6)
    tiny = {**weights, "dense.bias": 1e-2 * weights["dense.bias"]}
    return {"output": _array(adapters.add_norm(weights, x, residual, 0.0)),
            "output of small numbers": _array(adapters.add_norm(tiny, 1e-2 * x, 1e-2 * residual, 0.0)),
            "output if all is dropped": _array(adapters.add_norm(weights, x, residual, 1.0))}


def layer(adapters: ModuleType, seed: int) -> Arrays:
    """Run a layer, and let one token of the padding change."""
    generator = _generator(seed)
    weights = _layer_weights(generator, 12, 20)
    hidden, mask = _normal(generator, 2, 5, 12), _mask()
    other = torch.where(mask[..., None], hidden, hidden + 3)
    real = mask[..., None]
    first = adapters.layer(weights, 3, hidden, mask) * real
    return {"output": _array(first),
            "change of the output if padding changes": _array(adapters.layer(weights, 3, other, mask) * real - first)}


def model(adapters: ModuleType, seed: int) -> Arrays:
    """Run a whole encoder, and look names of weights up."""
    generator = _generator(seed)
    weights = _embedding_weights(generator, 12, "embeddings.")
    for index in range(3):
        weights |= _layer_weights(generator, 12, 20, f"encoder.layer.{index}.")
    weights |= _linear(generator, "pooler.dense", 12, 12)
    ids, types = torch.tensor([[1, 4, 4, 0, 0], [9, 0, 3, 4, 2]]), torch.tensor([[0, 0, 1, 0, 0], [0, 1, 1, 1, 1]])
    hidden, pooled = adapters.model(weights, 3, ids, _mask(), types)
    names = ["bert.embeddings.LayerNorm.gamma", "module.bert.encoder.layer.3.output.LayerNorm.beta",
             "encoder.layer.0.attention.self.query.weight", "bert.pooler.dense.bias"]
    return {"last_hidden_state": _array(hidden * _mask()[..., None]), "pooler_output": _array(pooled),
            "names in weight files": np.array([adapters.parameter_name(name) for name in names])}


# Settings under which no known mistake stays small: a large eps and decay, two parameters of different scale.
ADAMW = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}


def _train(adapters: ModuleType, seed: int, steps: int, resume: bool = False, **settings) -> list[Tensor]:
    generator = _generator(seed)
    first, second = (torch.nn.Parameter(_normal(generator, *shape)) for shape in ((3, 2), (4,)))
    groups = [{"params": [first]}, {"params": [second], "weight_decay": 0.3}]
    optimizer = adapters.optimizer(groups, **{**ADAMW, **settings})
    for step in range(steps):
        for index, parameter in enumerate((first, second)):
            scale = (3.0, 5e-4)[index]
            # At the second step one parameter has no gradient: nothing of it may move, its step number neither.
            parameter.grad = None if (step, index) == (1, 0) else scale * _normal(generator, *parameter.shape)
        if resume and step == steps - 1:
            saved = optimizer.state_dict()
            optimizer = adapters.optimizer(groups, **{**ADAMW, **settings})
            optimizer.load_state_dict(saved)
        optimizer.step()
    return [first.detach().clone(), second.detach().clone()]


def adamw(adapters: ModuleType, seed: int) -> Arrays:
    """Take a few steps, with and without the correction of the bias, and resume."""
    result = {}
    for name, steps, options in (("after one step", 1, {}), ("after four steps", 4, {}),
                                 ("without correct_bias", 3, {"correct_bias": False}),
                                 ("without decay", 3, {"weight_decay": 0.0}),
                                 ("after resuming from state_dict", 3, {"resume": True})):
        for index, parameter in enumerate(_train(adapters, seed, steps, **options)):
            result[f"parameter {index + 1} {name}"] = _array(parameter)
    return result


def sentiment(adapters: ModuleType, seed: int) -> Arrays:
    """Classify vectors, and classify with everything dropped."""
    generator = _generator(seed)
    vectors, weight, bias = _normal(generator, 7, 6), _normal(generator, 5, 6), _normal(generator, 5)
    vectors.requires_grad_()
    labels = torch.tensor([0, 4, 2, 2, 1, 3, 0])
    logits, loss, predicted = adapters.classify(vectors, weight, bias, labels, 0.0)
    (gradient,) = torch.autograd.grad(loss, vectors)
    dropped, _, _ = adapters.classify(vectors, weight, bias, labels, 1.0)
    return {"logits": _array(logits), "loss": _array(loss), "predictions": _array(predicted),
            "gradient of the vectors": _array(gradient), "logits if all is dropped": _array(dropped)}


def pairs(adapters: ModuleType, seed: int) -> Arrays:
    """Pool, combine, and score similarity."""
    generator = _generator(seed)
    mask = _mask()
    hidden = _normal(generator, 2, 5, 6) - 3.0 * mask[..., None]  # real tokens below zero: a zero would be the largest
    u, v = _normal(generator, 4, 6), _normal(generator, 4, 6)
    v = v + 1.5 * u  # cosines that are mostly positive
    loss, predicted = adapters.similarity(u, v, torch.tensor([5.0, 3.8, 0.4, 2.0], dtype=PRECISION))
    return {"mean of the real tokens": _array(adapters.pool(hidden, mask, "mean")),
            "maximum of the real tokens": _array(adapters.pool(hidden, mask, "max")),
            "features": _array(adapters.features(u, v, ("u", "v", "|u-v|", "u*v", "cos"))),
            "loss of the similarity": _array(loss), "predicted similarity": _array(predicted)}


def nli(adapters: ModuleType, seed: int) -> Arrays:
    """Compute both objectives, with and without equal sentences in the batch."""
    generator = _generator(seed)
    anchors, positives, negatives = (_normal(generator, 4, 6) for _ in range(3))
    candidates = torch.cat([positives, negatives])
    different = torch.arange(4), torch.arange(4, 12)
    # Anchors 0 and 2 are one sentence: the positive of one is no negative of the other.
    twins = torch.tensor([0, 1, 0, 3]), torch.tensor([4, 5, 6, 7, 8, 9, 6, 11])
    return {"triplet loss": _array(adapters.triplet(anchors, positives, negatives, 1.0)),
            "triplet loss with a small margin": _array(adapters.triplet(anchors, positives, negatives, 0.1)),
            "contrastive loss": _array(adapters.contrast(anchors, candidates, *different, 0.2)),
            "contrastive loss of a batch with equal sentences": _array(
                adapters.contrast(anchors, candidates, *twins, 0.2))}


def mixing(adapters: ModuleType, seed: int) -> Arrays:
    """Ask for shares and for orders."""
    sizes = {"sst": 8544, "para": 141_506, "sts": 6040}
    result: Arrays = {}
    for kind, temperature, progress, cap in (
            ("proportional", 2.0, 0.0, {}), ("square_root", 2.0, 0.0, {}), ("uniform", 2.0, 0.0, {}),
            ("temperature", 3.0, 0.0, {}), ("annealed", 2.0, 0.0, {}), ("annealed", 2.0, 1.0, {}),
            ("proportional", 2.0, 0.0, {"para": 20_000})):
        name = f"{kind}, temperature {temperature:g}, progress {progress:g}" + (", capped" if cap else "")
        result[name] = _array(adapters.shares(sizes, kind, temperature, progress, cap))
    for kind, steps in (("cycle", 4), ("sequential", 12), ("in_turn", 12)):
        result[f"order of {kind}"] = np.array([" ".join(names) for names in
                                               adapters.order({"sst": 2, "para": 3, "sts": 1}, kind, steps)])
    return result


def surgery(adapters: ModuleType, seed: int) -> Arrays:
    """Combine gradients whose result does not depend on the order, and three whose result does."""
    generator = _generator(seed)
    first = _normal(generator, 8)
    other = _normal(generator, 8)
    against = other - (1.3 * (other @ first) / (first @ first) + 0.6) * first  # conflicts with the first
    along = other - ((other @ first) / (first @ first) - 0.8) * first  # does not
    result = {"two that agree": _array(adapters.surgery(torch.stack([first, along]), seed)),
              "two in conflict": _array(adapters.surgery(torch.stack([first, against]), seed)),
              "one": _array(adapters.surgery(first[None], seed))}
    three = torch.stack([first, against, _normal(generator, 8) - 0.7 * first - 0.5 * against])
    found = [_array(adapters.surgery(three, number)) for number in range(12)]
    every = _all_orders(three)
    # Any order is right, a result of no order is wrong. Which order it was, chance decides.
    result["three in conflict: the result of some order"] = np.array(all(
        min(float(np.abs(one - order).max()) for order in every) < TOLERANCE for one in found))
    different = {tuple(np.round(one, 4)) for one in found}
    result["three in conflict: orders differ between seeds"] = np.array(len(different) > 1)
    return result


def _all_orders(gradients: Tensor) -> list[np.ndarray]:
    """Return PCGrad's results for all orders of projection of three gradients."""
    projected = []
    for index in range(3):
        others = [other for other in range(3) if other != index]
        ways = []
        for way in itertools.permutations(others):
            own = gradients[index].clone()
            for other in way:
                product = own @ gradients[other]
                if product < 0:
                    own = own - product / (gradients[other] @ gradients[other]) * gradients[other]
            ways.append(own)
        projected.append(ways)
    return [sum(choice).numpy() for choice in itertools.product(*projected)]  # type: ignore[union-attr]


PROBES: dict[str, Probe] = {probe.__name__: probe for probe in (
    tokens, embeddings, attention, heads, add_norm, layer, model, adamw, sentiment, pairs, nli, mixing, surgery)}
