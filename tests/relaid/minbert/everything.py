"""A right solution of all exercises in one file, with names, classes and tensor layouts of its own.

It shares nothing with the reference but the equations. tests/test_course_checks.py runs the checks on it, through the
adapters beside it: a check may depend on what code computes, never on how it is laid out.
"""
import itertools
import random
import re
import unicodedata

import torch
from torch.nn.functional import dropout, gelu, layer_norm, one_hot

# ---- text ------------------------------------------------------------------------------------------------------------

def words(text):
    text = "".join(" " if c.isspace() else c for c in text if c in "\t\n\r" or unicodedata.category(c)[0] != "C")
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return re.findall(r"[\u4e00-\u9fff]|[^\w\s]|[^\W\u4e00-\u9fff]+", text)


def pieces(word, known):
    cut, rest = [], word
    while rest:
        mark = "##" if cut else ""
        longest = next((n for n in range(len(rest), 0, -1) if mark + rest[:n] in known), 0)
        if not longest:
            return ["[UNK]"]
        cut.append(mark + rest[:longest])
        rest = rest[longest:]
    return cut


def numbers(text, known):
    return [known[piece] for word in words(text) for piece in pieces(word, known)]


def join(first, second, limit, known):
    first, second = list(first), None if second is None else list(second)
    while len(first) + len(second or []) + (2 if second is None else 3) > limit:
        (first if second is None or len(first) > len(second) else second).pop()
    cls, sep = known["[CLS]"], known["[SEP]"]
    ids = [cls, *first, sep]
    types = [0] * len(ids)
    return (ids, types) if second is None else (ids + [*second, sep], types + [1] * (len(second) + 1))


# ---- the encoder: functions of tensors, and a dictionary of weights --------------------------------------------------

def lin(w, name, x):
    return torch.einsum("oi,...i->...o", w[f"{name}.weight"], x) + w[f"{name}.bias"]


def norm(w, name, x):
    return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)


def look_up(w, ids, types, rate):
    rows = [one_hot(index, len(w[name])).to(w[name].dtype) @ w[name] for name, index in (
        ("word_embeddings.weight", ids), ("token_type_embeddings.weight", types))]
    summed = rows[0] + rows[1] + w["position_embeddings.weight"][:ids.shape[1]]
    return dropout(norm(w, "LayerNorm", summed), rate)


def attend(q, k, v, real, rate, on=True):
    """q, k, v [B, T, A, D]: tokens come before heads here."""
    scores = torch.einsum("btad,bsad->bats", q, k) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~real[:, None, None], -torch.inf)
    return torch.einsum("bats,bsad->btad", dropout(scores.exp() / scores.exp().sum(-1, True), rate, on), v)


def look_around(w, number, x, real, rate=0.0, on=False, name=""):
    q, k, v = (lin(w, name + part, x).unflatten(-1, (number, -1)) for part in ("query", "key", "value"))
    return attend(q, k, v, real, rate, on).flatten(2)


def join_in(w, name, x, past, rate=0.0):
    prefix = f"{name}." if name else ""
    return norm(w, f"{prefix}LayerNorm", past + dropout(lin(w, f"{prefix}dense", x), rate, rate > 0))


def block(w, number, x, real):
    seen = join_in(w, "attention.output", look_around(w, number, x, real, name="attention.self."), x)
    return join_in(w, "output", gelu(lin(w, "intermediate.dense", seen)), seen)


def under(w, prefix):
    return {name.removeprefix(prefix): tensor for name, tensor in w.items() if name.startswith(prefix)}


def read(w, number, ids, real, types):
    x = look_up(under(w, "embeddings."), ids, types, 0.0)
    for depth in itertools.count():
        if not (own := under(w, f"encoder.layer.{depth}.")):
            return x, torch.tanh(lin(w, "pooler.dense", x[:, 0]))
        x = block(own, number, x, real)


def plain_name(name):
    name = name.split("module.")[-1].removeprefix("bert.")
    return name.replace("gamma", "weight").replace("beta", "bias")


# ---- learning --------------------------------------------------------------------------------------------------------

class Stepper(torch.optim.Optimizer):
    """AdamW that decays and moves at once, from the two running means."""

    def __init__(self, groups, lr, betas, eps, weight_decay, correct_bias=True):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "right": correct_bias})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                s = self.state[p]
                s["n"] = s.get("n", 0) + 1
                for power, beta in enumerate(group["betas"], start=1):
                    s[power] = s.get(power, 0 * p) * beta + (1 - beta) * p.grad ** power
                fix = [1 - beta ** s["n"] if group["right"] else 1 for beta in group["betas"]]
                move = (s[1] / fix[0]) / ((s[2] / fix[1]) ** 0.5 + group["eps"])
                p -= group["lr"] * (move + group["weight_decay"] * p)


def cross_entropy(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def cosine(u, v):
    return (u * v).sum(-1) / ((u * u).sum(-1) * (v * v).sum(-1)) ** 0.5


def squash(hidden, real, kind):
    chosen = [row[mask] for row, mask in zip(hidden, real, strict=True)]
    return torch.stack([row.mean(0) if kind == "mean" else row.amax(0) for row in chosen])


def far(a, p, n, margin):
    near, away = ((a - other).pow(2).sum(1).sqrt() for other in (p, n))
    return torch.relu(near - away + margin).mean()


def contrastive(a, c, a_text, c_text, heat):
    losses = []
    for i in range(len(a)):
        partners = {int(a_text[i])} | {int(c_text[j]) for j in range(len(a)) if a_text[j] == a_text[i]}
        partners |= {int(a_text[j]) for j in range(len(a)) if c_text[j] == a_text[i]}
        scores = torch.stack([cosine(a[i], c[m]) / heat for m in range(len(c))
                              if m == i or int(c_text[m]) not in partners])
        losses.append(scores.logsumexp(0) - cosine(a[i], c[i]) / heat)
    return sum(losses) / len(losses)


# ---- many tasks ------------------------------------------------------------------------------------------------------

def portions(sizes, kind, heat, done, most):
    power = {"proportional": 1, "square_root": .5, "uniform": 0, "temperature": 1 / heat,
             "annealed": 1 - .8 * done}[kind]
    raised = [min(size, most.get(name, size)) ** power for name, size in sizes.items()]
    return [value / sum(raised) for value in raised]


def plan(batches, kind, steps):
    if kind == "cycle":
        return [list(batches)] * steps
    one = [[name] for name, count in batches.items() for _ in range(count)]
    if kind == "in_turn":
        return list(itertools.islice(itertools.cycle(one), steps))
    return [one[step * len(one) // steps] for step in range(steps)]


def make_peace(gradients, seed):
    rng, total = random.Random(seed), 0 * gradients[0]
    for i, own in enumerate(gradients):
        own = own.clone()
        for j in rng.sample(range(len(gradients)), len(gradients)):
            if i != j and own @ gradients[j] < 0:
                own = own - (own @ gradients[j]) / (gradients[j] @ gradients[j]) * gradients[j]
        total = total + own
    return total
