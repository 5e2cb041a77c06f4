"""Mistakes and right variants outside the encoder: WordPiece, AdamW, heads, objectives, mixing, surgery."""
from course.mistakes import mistake, variant

TOKENIZER, ADAMW, SENTIMENT = "minbert/tokenizer.py", "minbert/adamw.py", "tasks/sentiment.py"
POOLING, HEADS, OBJECTIVES, LOSSES = "tasks/pooling.py", "tasks/heads.py", "tasks/objectives.py", "tasks/losses.py"
MIXING, SURGERY, INFERENCE = "training/mixing.py", "training/surgery.py", "tasks/inference.py"

_PIECE = "word[start:end] if start == 0 else \"##\" + word[start:end]"
_ENDS = "range(len(word), start, -1)"
_DECAY = ("        parameter.mul_(1 - lr * group[\"weight_decay\"])  # decay is not part of the gradient, so m and v never "
          "see it\n")
_FIRST = "m.mul_(beta1).add_(gradient, alpha=1 - beta1)"
_SECOND = "v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)"
_UPDATE = "parameter.sub_(lr * m_hat / (root_of_v_hat + eps))"
_BIASED = "m_hat = m / (1 - beta1**t)"
_ROOT = "root_of_v_hat = v.sqrt() / math.sqrt(1 - beta2**t)  # v itself, divided, could overflow"
_STEP = "t, m, v, gradient = state[\"step\"], state[\"exp_avg\"], state[\"exp_avg_sq\"], parameter.grad"
_LOSS = "F.cross_entropy(outputs.values, batch.labels, label_smoothing=self.label_smoothing)"
_POWERS = "return {name: size ** exponent for name, size in sizes.items()}"
_CONFLICT = "conflict = mix[i] @ gram[j]"
_PROJECT = "mix[i, j] -= conflict / gram[j, j]"
_WHO = "if j != i and conflict < 0:"

MISTAKES = [
    mistake("T1", "tokens", TOKENIZER, "pieces without ##", "pieces inside a word begin with ##", _PIECE,
            "word[start:end]"),
    mistake("T2", "tokens", TOKENIZER, "the shortest piece first", "try the longest piece first", _ENDS,
            "range(start + 1, len(word) + 1)"),
    mistake("T3", "tokens", TOKENIZER, "accents that stay", "decompose (NFD), and leave the marks out",
            "        character = \"\".join(c for c in unicodedata.normalize(\"NFD\", character) if ord(c) not in MARKS)",
            "        pass"),
    mistake("T4", "tokens", TOKENIZER, "Chinese characters that stay together", "each is a word of its own",
            "return f\" {separated} \" if chinese else separated", "return separated"),
    mistake("T5", "tokens", TOKENIZER, "truncation that eats the last [SEP]", "leave room for the special tokens, then "
            "cut", "            if second is None:\n                first = first[:room]",
            "            if second is None:\n                return ([self.cls_id, *first, self.sep_id][:max_length],\n"
            "                        [0] * min(max_length, len(first) + 2))"),
    mistake("T6", "tokens", TOKENIZER, "a pair without [SEP] between its sentences", "a [SEP] ends each sentence",
            "            more = [*[self.sep_id]", "            input_ids.pop()\n            token_type_ids.pop()\n"
            "            more = [*[self.sep_id]"),
    mistake("T7", "tokens", TOKENIZER, "token types that are all 0", "the second sentence, with its [SEP], has type 1",
            "token_type_ids += [1] * len(more)", "token_type_ids += [0] * len(more)"),
    mistake("T8", "tokens", TOKENIZER, "capital letters that stay", "uncased models have a lower-case vocabulary",
            "        character = \"\".join(c.lower() for c in character)", "        pass"),
    mistake("T9", "tokens", TOKENIZER, "a word that is cut as far as it goes", "a word that cannot be cut whole is [UNK]",
            "            else:\n                return None\n        return pieces",
            "            else:\n                break\n        return pieces"),
    mistake("T10", "tokens", TOKENIZER, "punctuation that stays in its word", "each punctuation character is a word",
            "f\" {c} \" if ord(c) in PUNCTUATION else c", "c"),
    mistake("T11", "tokens", TOKENIZER, "truncation of the second sentence only", "the longer sentence is cut first",
            "keep_first, keep_second = longest_first(len(first), len(second), room)",
            "keep_first, keep_second = min(len(first), room), max(0, room - len(first))"),
    mistake("T12", "tokens", TOKENIZER, "control characters that become spaces", "they are dropped: a\\0b is one word",
            "    if code in CONTROLS:\n        return \"\"", "    if code in CONTROLS:\n        return \" \""),
    mistake("W1", "adamw", ADAMW, "AdamW without the correction of the bias", "divide m by 1 - beta1^t and v by 1 - "
            "beta2^t", "if not group[\"correct_bias\"]:", "if True:"),
    mistake("W2", "adamw", ADAMW, "a correction of v without its root", "v is corrected under the root", _ROOT,
            "root_of_v_hat = v.sqrt() / (1 - beta2**t)"),
    mistake("W3", "adamw", ADAMW, "a correction of m only", "v is corrected as well", _ROOT, "root_of_v_hat = v.sqrt()"),
    mistake("W4", "adamw", ADAMW, "a step number that begins at 0", "count the step before it is used", _STEP,
            _STEP + "\n        t = t - 1 if t > 1 else 1"),
    mistake("W5", "adamw", ADAMW, "a step number that is one too high", "the first step has t = 1", _STEP,
            _STEP + "\n        t = t + 1"),
    mistake("W6", "adamw", ADAMW, "one step number for all parameters", "each parameter counts its own steps",
            "        state[\"step\"] += 1\n", "        self.all_steps = getattr(self, \"all_steps\", 0) + (parameter is "
            "self.param_groups[-1][\"params\"][-1])\n        state[\"step\"] = self.all_steps + (parameter is not "
            "self.param_groups[-1][\"params\"][-1])\n"),
    mistake("W7", "adamw", ADAMW, "eps inside the root", "eps is added to the root", _UPDATE,
            "parameter.sub_(lr * m_hat / (root_of_v_hat.square() + eps).sqrt())"),
    mistake("W8", "adamw", ADAMW, "no eps", "eps is added to the root", _UPDATE, "parameter.sub_(lr * m_hat / root_of_v_hat)"),
    mistake("W9", "adamw", ADAMW, "no root of v", "divide by the root of v", _UPDATE,
            "parameter.sub_(lr * m_hat / (root_of_v_hat.square() + eps))"),
    mistake("W10", "adamw", ADAMW, "the two betas exchanged", "beta1 belongs to m, beta2 to v", "(beta1, beta2), eps",
            "(beta2, beta1), eps"),
    mistake("W11", "adamw", ADAMW, "m without the factor 1 - beta1", "an average: beta1 of the old, 1 - beta1 of the new",
            _FIRST, "m.mul_(beta1).add_(gradient)"),
    mistake("W12", "adamw", ADAMW, "v of the gradient instead of its square", "v averages squares", _SECOND,
            "v.mul_(beta2).add_(gradient.abs(), alpha=1 - beta2)"),
    mistake("W13", "adamw", ADAMW, "averages that are forgotten after each step", "write m and v back into the state",
            _STEP, _STEP + "\n        m, v = torch.zeros_like(m), torch.zeros_like(v)"),
    mistake("W14", "adamw", ADAMW, "decay inside the gradient (L2, as in Adam)", "decay is apart from the gradient",
            _DECAY, "", _STEP, _STEP + "\n        gradient = gradient + group[\"weight_decay\"] * parameter"),
    mistake("W15", "adamw", ADAMW, "no weight decay", "a parameter shrinks by lr * weight_decay of itself", _DECAY, ""),
    mistake("W16", "adamw", ADAMW, "decay without the learning rate", "it shrinks by lr * weight_decay of itself", _DECAY,
            "        parameter.mul_(1 - group[\"weight_decay\"])\n"),
    mistake("W17", "adamw", ADAMW, "decay with the wrong sign", "it shrinks", _DECAY,
            "        parameter.mul_(1 + lr * group[\"weight_decay\"])\n"),
    mistake("W18", "adamw", ADAMW, "decay with the corrected step size", "decay takes lr itself", _DECAY,
            "        parameter.mul_(1 - lr * math.sqrt(1 - beta2**state[\"step\"]) / (1 - beta1**state[\"step\"])"
            " * group[\"weight_decay\"])\n"),
    mistake("W19", "adamw", ADAMW, "correct_bias=False that is ignored", "without it m and v are used as they are",
            "if not group[\"correct_bias\"]:", "if False:"),
    mistake("W20", "adamw", ADAMW, "correct_bias the wrong way round", "True corrects", "if not group[\"correct_bias\"]:",
            "if group[\"correct_bias\"]:"),
    mistake("W21", "adamw", ADAMW, "a state that state_dict does not save", "keep it in self.state[parameter]",
            "state = self.state[parameter]", "state = self.__dict__.setdefault(\"own\", {}).setdefault(parameter, {})"),
    mistake("W22", "adamw", ADAMW, "one weight_decay for all groups", "read it from the parameter's group", _DECAY,
            "        parameter.mul_(1 - lr * 0.1)\n"),
    mistake("W23", "adamw", ADAMW, "decay of a parameter without a gradient", "what has no gradient is left alone",
            "                if parameter.grad is not None:\n", "                if parameter.grad is None:\n"
            "                    parameter.mul_(1 - group[\"lr\"] * group[\"weight_decay\"])\n                else:\n"),
    mistake("S1", "sentiment", SENTIMENT, "a softmax before the cross-entropy", "cross_entropy takes logits: the loss "
            "cannot fall below 0.905 otherwise", _LOSS,
            "F.cross_entropy(outputs.values.softmax(dim=1), batch.labels, label_smoothing=self.label_smoothing)"),
    mistake("S2", "sentiment", SENTIMENT, "the sum of the losses", "the loss is a mean over the batch", _LOSS,
            "F.cross_entropy(outputs.values, batch.labels, reduction=\"sum\")"),
    mistake("S3", "sentiment", SENTIMENT, "the least likely class", "the class of the largest logit",
            "outputs.values.argmax(dim=1)", "outputs.values.argmin(dim=1)"),
    mistake("S4", "sentiment", HEADS, "a head without dropout", "dropout comes before the linear layer",
            "return nn.Sequential(nn.Dropout(dropout), nn.Linear(size, outputs))",
            "return nn.Sequential(nn.Identity(), nn.Linear(size, outputs))"),
    mistake("S5", "sentiment", SENTIMENT, "a sigmoid before the cross-entropy", "cross_entropy takes logits", _LOSS,
            "F.cross_entropy(outputs.values.sigmoid(), batch.labels, label_smoothing=self.label_smoothing)"),
    mistake("S6", "sentiment", SENTIMENT, "a loss divided by a fixed batch size", "the last batch is smaller: divide by "
            "its own size", _LOSS, "F.cross_entropy(outputs.values, batch.labels, reduction=\"sum\") / 64"),
    mistake("S7", "sentiment", SENTIMENT, "a loss that forgets gradients", "no detach between encoder and loss",
            "return Outputs(self.head(vectors), penalty)",
            "return Outputs(self.head(vectors.detach()) + 0 * vectors.sum(), penalty)"),
    mistake("P1", "pairs", POOLING, "a mean over padding too", "divide by the number of real tokens, and add them only",
            "weights = mask.to(hidden.dtype)\n    total", "weights = torch.ones_like(mask, dtype=hidden.dtype)\n    total"),
    mistake("P2", "pairs", POOLING, "a sum of real tokens divided by the padded length", "divide by the number of real "
            "tokens", "weights.sum(dim=1, keepdim=True).clamp_min(1)", "hidden.shape[1]"),
    mistake("P3", "pairs", POOLING, "a maximum over padding too", "padding takes no part",
            "hidden.masked_fill(~real, torch.finfo(hidden.dtype).min).amax(dim=1)", "hidden.amax(dim=1)"),
    mistake("P4", "pairs", POOLING, "a maximum with zeros at padding", "a zero can be the largest number: fill with a very "
            "negative one", "hidden.masked_fill(~real, torch.finfo(hidden.dtype).min).amax(dim=1)",
            "(hidden * real).amax(dim=1)"),
    mistake("P5", "pairs", HEADS, "u - v without its absolute value", "the order of two sentences means nothing",
            "(u - v).abs()", "(u - v)"),
    mistake("P6", "pairs", HEADS, "u + v in place of u * v", "the product, number by number", "lambda u, v: u * v",
            "lambda u, v: u + v"),
    mistake("P7", "pairs", HEADS, "a dot product in place of the cosine", "divide by both lengths",
            "F.cosine_similarity(u, v).unsqueeze(1)", "(u * v).sum(dim=1, keepdim=True)"),
    mistake("P8", "pairs", OBJECTIVES, "similarity labels that are not scaled", "a cosine is at most 1, a label at most 5",
            "(self.high - self.low) * labels / self.highest", "(self.high - self.low) * labels"),
    mistake("P9", "pairs", OBJECTIVES, "predictions that are not scaled back to 0..5", "multiply by 5",
            "self.highest * (scores - self.low)", "(scores - self.low)"),
    mistake("P10", "pairs", OBJECTIVES, "similarity labels cut to whole numbers", "labels are floats: 3.8 is not 3",
            "self.target(labels))\n\n\nclass AbsoluteError", "self.target(labels.long().to(outputs.dtype)))\n\n\n"
            "class AbsoluteError"),
    mistake("P11", "pairs", OBJECTIVES, "an absolute error in place of the squared one", "mean squared error",
            "F.mse_loss(outputs, self.target(labels))", "F.l1_loss(outputs, self.target(labels))"),
    mistake("I1", "nli", LOSSES, "a triplet loss with the margin subtracted", "the negative should be farther by the "
            "margin: it is added", "negatives, margin=margin, p=2)", "negatives, margin=max(1e-9, 0.0), p=2) * 0 + ("
            "F.pairwise_distance(anchors, positives) - F.pairwise_distance(anchors, negatives) - margin).clamp_min(0)"
            ".mean()"),
    mistake("I2", "nli", LOSSES, "positives and negatives exchanged", "the positive should be near",
            "F.triplet_margin_loss(anchors, positives, negatives,", "F.triplet_margin_loss(anchors, negatives, positives,"),
    mistake("I3", "nli", LOSSES, "anchors and positives exchanged", "distances are measured from the anchor",
            "F.triplet_margin_loss(anchors, positives, negatives,", "F.triplet_margin_loss(positives, anchors, negatives,"),
    mistake("I4", "nli", LOSSES, "a contrast of dot products in place of cosines", "normalise both sides",
            "logits = F.normalize(anchors, dim=1) @ F.normalize(candidates, dim=1).T / temperature",
            "logits = anchors @ candidates.T / temperature"),
    mistake("I5", "nli", LOSSES, "a temperature that multiplies", "cosines are divided by the temperature",
            "F.normalize(candidates, dim=1).T / temperature", "F.normalize(candidates, dim=1).T * temperature"),
    mistake("I6", "nli", LOSSES, "equal sentences as negatives of each other", "mask what is a positive anywhere in the "
            "batch", "logits.masked_fill(no_negative, torch.finfo(logits.dtype).min)", "logits"),
    mistake("I7", "nli", LOSSES, "squared distances in the triplet loss", "Euclidean distances",
            "negatives, margin=margin, p=2)", "negatives, margin=margin, p=2) * 0 + ((anchors - positives).square()"
            ".sum(1) - (anchors - negatives).square().sum(1) + margin).clamp_min(0).mean()"),
    mistake("I8", "nli", LOSSES, "a contrast without the contradicted sentences", "they are candidates as well",
            "    own = torch.arange(len(anchors), device=anchors.device)\n",
            "    own = torch.arange(len(anchors), device=anchors.device)\n    candidates, candidate_groups, logits = ("
            "candidates[:len(anchors)], candidate_groups[:len(anchors)],\n        logits[:, :len(anchors)])\n"),
    mistake("I9", "nli", LOSSES, "a softmax before the cross-entropy of the contrast", "cross_entropy takes logits",
            "return F.cross_entropy(logits.masked_fill(no_negative, torch.finfo(logits.dtype).min), own)",
            "return F.cross_entropy(logits.masked_fill(no_negative, torch.finfo(logits.dtype).min).softmax(dim=1), own)"),
    mistake("X1", "mixing", MIXING, "a square root that is none", "n^0.5", "powers(sizes, 0.5)", "powers(sizes, 2.0)"),
    mistake("X2", "mixing", MIXING, "a temperature as the exponent", "the exponent is 1 / T",
            "powers(sizes, 1 / temperature)", "powers(sizes, temperature)"),
    mistake("X3", "mixing", MIXING, "annealing the wrong way round", "from proportional towards uniform",
            "powers(sizes, 1 - 0.8 * progress)", "powers(sizes, 0.2 + 0.8 * progress)"),
    mistake("X4", "mixing", MIXING, "a cap that is ignored", "a size counts as at most its cap",
            "min(size, (cap or {}).get(name, size))", "size"),
    mistake("X5", "mixing", MIXING, "shares that do not sum to one", "divide by their sum",
            "return {name: weight / total", "return {name: weight / max(weights.values())"),
    mistake("X6", "mixing", MIXING, "uniform shares that are proportional", "n^0 is 1", "powers(sizes, 0.0)",
            "powers(sizes, 1.0) if progress == 0 else powers(sizes, 0.0)"),
    mistake("X7", "mixing", MIXING, "one batch of each task in turn, in place of one task after the other",
            "in_turn: all batches of the first task, then all of the second",
            "order = [name for name, count in batches for _ in range(count)]",
            "order = [name for place in range(max(count for _, count in batches)) for name, count in batches "
            "if place < count]"),
    mistake("X8", "mixing", MIXING, "a sequential mixing that never leaves the first task", "each task gets its share of "
            "the steps", "            if place < batches[name]:\n",
            "            if name == names[0] or place < batches[name]:\n"),
    mistake("G1", "surgery", SURGERY, "a projection that adds the conflict", "subtract the projection", _PROJECT,
            "mix[i, j] += conflict / gram[j, j]"),
    mistake("G2", "surgery", SURGERY, "a projection onto the gradient that was projected already",
            "project off the original gradients of the others", _CONFLICT, "conflict = mix[i] @ gram @ mix[j]", _PROJECT,
            "mix[i] -= conflict / (mix[j] @ gram @ mix[j]).clamp_min(1e-12) * mix[j]"),
    mistake("G3", "surgery", SURGERY, "a projection of gradients that agree", "project only where the product is negative",
            _WHO, "if j != i and conflict > 0:"),
    mistake("G4", "surgery", SURGERY, "a projection always, in conflict or not", "project only where the product is "
            "negative", _WHO, "if j != i:"),
    mistake("G5", "surgery", SURGERY, "the mean of the projected gradients", "their sum", "return mix.sum(dim=0)\n\n\ndef "
            "gradvac", "return mix.mean(dim=0)\n\n\ndef gradvac"),
    mistake("G6", "surgery", SURGERY, "a division by the length instead of its square", "divide by |g_j|^2", _PROJECT,
            "mix[i, j] -= conflict / gram[j, j].sqrt()"),
    mistake("G7", "surgery", SURGERY, "a division by the wrong gradient's length", "divide by |g_j|^2, not |g_i|^2",
            _PROJECT, "mix[i, j] -= conflict / gram[i, i]"),
    mistake("G8", "surgery", SURGERY, "a fixed order of projections", "draw a new order for each gradient",
            "torch.randperm(len(gram), generator=generator).tolist():\n            conflict",
            "range(len(gram)):\n            conflict"),
]

VARIANTS = [
    variant("W-decay-last", "adamw", ADAMW, "decay after the update", _DECAY, "",
            "            parameter.sub_(lr * m_hat / (root_of_v_hat + eps))\n",
            "            parameter.sub_(lr * m_hat / (root_of_v_hat + eps))\n"
            "        parameter.mul_(1 - lr * group[\"weight_decay\"])\n", form=True),
    variant("W-efficient", "adamw", ADAMW, "both corrections in the step size (the course's form)",
            "elif group[\"efficient\"]:", "elif True:", form=True),
    variant("W-efficient-decay-last", "adamw", ADAMW, "the course's form, decay after the update", _DECAY, "",
            "elif group[\"efficient\"]:", "elif True:", "            parameter.sub_(lr * m_hat / (root_of_v_hat + eps))\n",
            "            pass\n        parameter.mul_(1 - lr * group[\"weight_decay\"])\n", form=True),
    variant("W-lerp", "adamw", ADAMW, "lerp", _FIRST, "m.lerp_(gradient, 1 - beta1)"),
    variant("T-find", "tokens", TOKENIZER, "a loop from the end, written with reversed", _ENDS,
            "reversed(range(start + 1, len(word) + 1))"),
    variant("S-nll", "sentiment", SENTIMENT, "log_softmax and nll_loss", _LOSS,
            "F.nll_loss(outputs.values.log_softmax(dim=1), batch.labels)"),
    variant("P-where", "pairs", POOLING, "a mean by multiplication", "total = torch.bmm(weights.unsqueeze(1), hidden)"
            ".squeeze(1)", "total = (hidden * weights.unsqueeze(-1)).sum(dim=1)"),
    variant("I-distance", "nli", LOSSES, "pairwise_distance", "F.triplet_margin_loss(anchors, positives, negatives, "
            "margin=margin, p=2)", "(F.pairwise_distance(anchors, positives) - F.pairwise_distance(anchors, negatives)"
            " + margin).clamp_min(0).mean()"),
    variant("X-generator", "mixing", MIXING, "a dictionary by keys", _POWERS,
            "return dict(zip(sizes, (size ** exponent for size in sizes.values()), strict=True))"),
    variant("G-shuffled", "surgery", SURGERY, "another way to draw the order",
            "torch.randperm(len(gram), generator=generator).tolist():\n            conflict",
            "torch.rand(len(gram), generator=generator).argsort().tolist():\n            conflict"),
]
