"""Plain reimplementations of every head and loss, one example at a time, from the formulas. The tasks must equal them.

Nothing here comes from tasks/: vectors go in, and numbers come out of loops over examples in float64.
"""
import math

import torch


def cosine(u, v):
    return (u @ v / (u.norm() * v.norm())).item()


def feature_vector(u, v, parts):
    """InferSent's features of one pair, side by side."""
    numbers = []
    for part in parts.split(","):
        if part == "cos":
            numbers.append(cosine(u, v))
        else:
            for a, b in zip(u.tolist(), v.tolist(), strict=True):
                numbers.append({"u": a, "v": b, "|u-v|": abs(a - b), "u*v": a * b}[part])
    return torch.tensor(numbers, dtype=torch.float64)


def apply_head(head, features):
    """A linear layer, or a multi-layer perceptron with tanh, from its weights. Returns a list of numbers."""
    layers = [(head[name], head[name.replace("weight", "bias")]) for name in sorted(head) if name.endswith("weight")]
    for index, (weight, bias) in enumerate(layers):
        features = torch.stack([(row * features).sum() + b for row, b in zip(weight, bias, strict=True)])
        if index < len(layers) - 1:
            features = features.tanh()
    return features.tolist()


def pooled(hidden, mask, kind, pooler):
    """One sentence vector of hidden states [T, H] with a mask [T]."""
    real = [state for state, here in zip(hidden, mask.tolist(), strict=True) if here]
    if kind == "mean":
        return sum(real) / len(real)
    if kind == "max":
        return torch.stack([torch.stack([state[i] for state in real]).max() for i in range(hidden.shape[1])])
    if kind == "cls":
        return hidden[0]
    assert kind == "pooler"
    weight, bias = pooler
    return (weight @ hidden[0] + bias).tanh()


def log_softmax(logits):
    total = math.log(sum(math.exp(x - max(logits)) for x in logits)) + max(logits)
    return [x - total for x in logits]


def pair_loss(kind, outputs, labels, highest, classes, options):
    """outputs: of each pair its logits (a list) or its score; for info_nce the pair's two vectors."""
    count = len(labels)
    if kind == "cross_entropy":
        smoothing = options.get("label_smoothing", 0.0)
        return sum(-(1 - smoothing) * log_softmax(logits)[int(label)] - smoothing * sum(log_softmax(logits)) / classes
                   for logits, label in zip(outputs, labels, strict=True)) / count
    low, high = options["target_range"]
    if kind == "bce":
        wanted = [label / highest for label in labels]
        return -sum(y * math.log(probability(score, options)) + (1 - y) * math.log(1 - probability(score, options))
                    for score, y in zip(outputs, wanted, strict=True)) / count
    targets = [low + (high - low) * label / highest for label in labels]
    if kind == "mse":
        return sum((score - target) ** 2 for score, target in zip(outputs, targets, strict=True)) / count
    if kind == "l1":
        return sum(abs(score - target) for score, target in zip(outputs, targets, strict=True)) / count
    if kind == "bins":
        bins, total = options["bins"], 0.0
        for logits, target in zip(outputs, targets, strict=True):
            for number, value in enumerate(log_softmax(logits)):
                total -= max(0.0, 1 - abs(target * (bins - 1) - number)) * value
        return total / count
    if kind == "hinge" and classes == 2:
        return sum(max(0.0, options["margin"] - (score if label == 1 else -score))
                   for score, label in zip(outputs, labels, strict=True)) / count
    ordered = [(outputs[i], outputs[j]) for i in range(count) for j in range(count) if labels[i] > labels[j]]
    if kind == "hinge":
        return sum(max(0.0, options["margin"] - (high - low)) for high, low in ordered) / len(ordered)
    if kind == "cosent":
        return math.log(1 + sum(math.exp(20 * (low - high)) for high, low in ordered))
    assert kind == "info_nce"
    return info_nce(outputs, [target >= options["positive_from"] for target in targets], options["temperature"])


def probability(score, options):
    """What binary cross-entropy reads a score as: a logit, or a cosine that has a place in the target range."""
    low, high = options["target_range"]
    return 1 / (1 + math.exp(-score)) if options["logit"] else min(1 - 1e-6, max(1e-6, (score - low) / (high - low)))


def info_nce(pairs, positive, temperature):
    """Both ways round over the positive pairs; every sentence of the other side is a negative (all texts differ)."""
    total, count = 0.0, 0
    for side in (0, 1):
        for i, pair in enumerate(pairs):
            if positive[i]:
                logits = [cosine(pair[side], other[1 - side]) / temperature for other in pairs]
                total -= log_softmax(logits)[i]
                count += 1
    return total / count


def pair_prediction(kind, output, highest, classes, options, head):
    """The class or score of one pair."""
    if kind == "cross_entropy":
        return output.index(max(output))
    if kind == "bins":
        weights = [math.exp(value) for value in log_softmax(output)]
        return sum(weight * highest * number / (options["bins"] - 1) for number, weight in enumerate(weights))
    low, high = options["target_range"]
    if kind == "bce":
        p = probability(output, options)
        return int(p > 0.5) if classes else highest * p
    output = (output - low) / (high - low)
    ranking = kind in ("hinge", "cosent", "info_nce")
    if classes is not None:
        if ranking:
            return int(output > options["threshold"])
        return min(range(classes), key=lambda label: abs(output - label / highest))
    if ranking and head != "cosine":
        output = 1 / (1 + math.exp(-output))
    return min(highest, max(0.0, highest * output))
