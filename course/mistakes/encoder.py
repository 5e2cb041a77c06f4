"""Mistakes and right variants of the encoder: attention, heads, embeddings, add-norm, layer, model."""
from course.mistakes import mistake, variant

ATTENTION, BERT, WEIGHTS = "minbert/attention.py", "minbert/bert.py", "minbert/weights.py"
_SCALE = "query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])"
_FILL = "scores.masked_fill(~mask[:, None, None, :], MASKED_SCORE)"
_SOFTMAX = "weights = scores.softmax(dim=-1)"
_DROPPED = "F.dropout(weights, dropout_p) @ value"
_SPLIT = "projected.unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)"
_MERGE = "context.transpose(1, 2).flatten(2), weights"
_PROJECT = "for project in (self.query, self.key, self.value)"
_MODE = "self.dropout_p if self.training else 0.0"
_EMBED = "F.dropout(self.LayerNorm(total), self.dropout_p, self.training)"
_SUM = ("(self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)\n"
        "                 + self.position_embeddings(position_ids))")
_ADD_NORM = "self.LayerNorm(residual + F.dropout(self.dense(x), self.dropout_p, self.training))"
_OWN_NORM = ("self.dense = nn.Linear(input_size, config.hidden_size)\n"
             "        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)")
_HALVES = ("        hidden = self.attention[\"output\"](context, hidden)\n"
           "        wide = self.activation(self.intermediate[\"dense\"](hidden))  # [B, T, intermediate_size]\n"
           "        return self.output(wide, hidden), weights")
_POOLED = "self.pooler(states[-1][:, 0])"


def _halves(first: str = "hidden = self.attention[\"output\"](context, hidden)",
            wide: str = "self.activation(self.intermediate[\"dense\"](hidden))",
            last: str = "self.output(wide, hidden)") -> str:
    return f"        {first}\n        wide = {wide}\n        return {last}, weights"


MISTAKES = [
    mistake("A1", "attention", ATTENTION, "attention without the division by sqrt(D)", "scores are divided by sqrt(D)",
            " / math.sqrt(query.shape[-1])", ""),
    mistake("A2", "attention", ATTENTION, "attention divided by D", "divide by the root of D, not by D",
            "/ math.sqrt(query.shape[-1])", "/ query.shape[-1]"),
    mistake("A3", "attention", ATTENTION, "attention divided by the root of the hidden size",
            "D is the size of one head, H / A", "math.sqrt(query.shape[-1])",
            "math.sqrt(query.shape[1] * query.shape[-1])"),
    mistake("A4", "attention", ATTENTION, "attention multiplied by sqrt(D)", "divide, do not multiply",
            " / math.sqrt(", " * math.sqrt("),
    mistake("A5", "attention", ATTENTION, "attention that ignores the mask, or has it on the axis of queries",
            "the mask belongs to the keys: [B, 1, 1, T]", f"    scores = {_FILL}\n", ""),
    mistake("A6", "attention", ATTENTION, "a mask that multiplies the weights after the softmax",
            "the mask comes before the softmax, so that the weights of real tokens sum to one", _FILL, "scores",
            _SOFTMAX, f"{_SOFTMAX} * mask[:, None, None, :]"),
    mistake("A7", "attention", ATTENTION, "an additive mask after the softmax", "add it to the scores, not to the weights",
            _FILL, "scores", _SOFTMAX, f"{_SOFTMAX} + (~mask[:, None, None, :]) * -1e4"),
    mistake("A8", "attention", ATTENTION, "scores multiplied by the 0/1 mask", "a score of 0 is not no attention: "
            "exp(0) is 1", _FILL, "scores * mask[:, None, None, :]"),
    mistake("A9", "attention", ATTENTION, "the 0/1 mask added to the scores", "add 0 for real tokens and a very negative "
            "number for padding", _FILL, "scores + mask[:, None, None, :].to(scores.dtype)"),
    mistake("A10", "attention", ATTENTION, "a mask the wrong way round: real tokens are hidden",
            "the mask is 1 (True) at real tokens", "masked_fill(~mask", "masked_fill(mask"),
    mistake("A11", "attention", ATTENTION, "a softmax over the queries", "softmax over the last axis, the keys",
            "softmax(dim=-1)", "softmax(dim=-2)"),
    mistake("A12", "attention", ATTENTION, "a softmax over the heads", "softmax over the last axis, the keys",
            "softmax(dim=-1)", "softmax(dim=1)"),
    mistake("A13", "attention", ATTENTION, "attention without dropout", "dropout falls on the weights, before they meet "
            "the values", _DROPPED, "weights @ value"),
    mistake("A14", "attention", ATTENTION, "dropout on the scores instead of on the weights", "dropout comes after the "
            "softmax", f"    {_SOFTMAX}", f"    scores = F.dropout(scores, dropout_p)\n    {_SOFTMAX}", _DROPPED,
            "weights @ value"),
    mistake("A15", "attention", ATTENTION, "weights that sum to one only before dropout is undone",
            "dropout keeps the mean: the weights are not normalised again after it", _DROPPED,
            "(lambda kept: kept / kept.sum(dim=-1, keepdim=True).clamp_min(1e-9) + 0 * dropout_p)(weights + dropout_p) "
            "@ value"),
    mistake("A16", "attention", ATTENTION, "keys and values exchanged", "softmax(Q K^T) V: the scores come from the keys",
            "query @ key.transpose", "query @ value.transpose", _DROPPED, "F.dropout(weights, dropout_p) @ key"),
    mistake("H1", "heads", ATTENTION, "heads that are merged without a transpose", "bring [B, A, T, D] to [B, T, A, D] "
            "before the heads are put side by side", _MERGE, "context.reshape(hidden.shape), weights"),
    mistake("H2", "heads", ATTENTION, "heads that are split by view(B, A, T, D)", "split the last axis first, then "
            "transpose", _SPLIT,
            "projected.reshape(projected.shape[0], self.num_attention_heads, projected.shape[1], -1)"),
    mistake("H3", "heads", ATTENTION, "heads that are merged number by number instead of head by head",
            "head a's numbers stay together", _MERGE, "context.permute(0, 2, 3, 1).flatten(2), weights"),
    mistake("H4", "heads", ATTENTION, "heads that are split number by number instead of head by head",
            "head a reads numbers a D to (a + 1) D", _SPLIT,
            "projected.unflatten(-1, (-1, self.num_attention_heads)).permute(0, 3, 1, 2)"),
    mistake("H5", "heads", ATTENTION, "queries and keys exchanged", "the query layer makes the queries", _PROJECT,
            "for project in (self.key, self.query, self.value)"),
    mistake("H6", "heads", ATTENTION, "keys and values exchanged", "the key layer makes the keys", _PROJECT,
            "for project in (self.query, self.value, self.key)"),
    mistake("H7", "heads", ATTENTION, "attention dropout that is active in evaluation", "pass 0 outside training",
            _MODE, "self.dropout_p"),
    mistake("H8", "heads", ATTENTION, "attention dropout that is never active", "pass the rate in training", _MODE, "0.0"),
    mistake("H9", "heads", ATTENTION, "one projection for queries, keys and values", "there are three layers", _PROJECT,
            "for project in (self.query, self.query, self.query)"),
    mistake("E1", "embeddings", BERT, "embeddings without positions", "add the position embeddings",
            "\n                 + self.position_embeddings(position_ids))", ")"),
    mistake("E2", "embeddings", BERT, "embeddings without token types", "add the token type embeddings",
            " + self.token_type_embeddings(token_type_ids)\n", "\n"),
    mistake("E3", "embeddings", BERT, "a LayerNorm of the word embeddings alone", "sum first, then normalise", _SUM,
            "(self.token_type_embeddings(token_type_ids) + self.position_embeddings(position_ids))", _EMBED,
            "F.dropout(self.LayerNorm(self.word_embeddings(input_ids)) + total, self.dropout_p, self.training)"),
    mistake("E4", "embeddings", BERT, "embeddings without LayerNorm", "normalise the sum", _EMBED,
            "F.dropout(total, self.dropout_p, self.training)"),
    mistake("E5", "embeddings", BERT, "embeddings without dropout", "dropout comes last", _EMBED,
            "self.LayerNorm(total)"),
    mistake("E6", "embeddings", BERT, "dropout before the LayerNorm of the embeddings", "dropout comes last", _EMBED,
            "self.LayerNorm(F.dropout(total, self.dropout_p, self.training))"),
    mistake("E7", "embeddings", BERT, "positions and token types exchanged", "each table has its own ids", _SUM,
            "(self.word_embeddings(input_ids) + self.token_type_embeddings(position_ids.clamp_max(1))\n"
            "                 + self.position_embeddings(token_type_ids))"),
    mistake("N1", "add_norm", BERT, "no residual", "add what came in", "residual + F.dropout(self.dense(x)",
            "F.dropout(self.dense(x)"),
    mistake("N2", "add_norm", BERT, "the LayerNorm first (pre-LayerNorm)", "BERT normalises the sum", _ADD_NORM,
            "residual + F.dropout(self.dense(self.LayerNorm(x)), self.dropout_p, self.training)"),
    mistake("N3", "add_norm", BERT, "a LayerNorm of the sub-layer alone, then the sum", "BERT normalises the sum",
            _ADD_NORM, "residual + self.LayerNorm(F.dropout(self.dense(x), self.dropout_p, self.training))"),
    mistake("N4", "add_norm", BERT, "no LayerNorm", "normalise the sum", _ADD_NORM,
            "residual + F.dropout(self.dense(x), self.dropout_p, self.training)"),
    mistake("N5", "add_norm", BERT, "no dense layer", "the dense layer comes first", "F.dropout(self.dense(x), ",
            "F.dropout(x, "),
    mistake("N6", "add_norm", BERT, "dropout after the sum", "dropout falls on the sub-layer's output only", _ADD_NORM,
            "self.LayerNorm(F.dropout(residual + self.dense(x), self.dropout_p, self.training))"),
    mistake("N7", "add_norm", BERT, "no dropout", "dropout falls on the dense layer's output", _ADD_NORM,
            "self.LayerNorm(residual + self.dense(x))"),
    mistake("N8", "add_norm", BERT, "dropout before the dense layer", "dropout comes after the dense layer", _ADD_NORM,
            "self.LayerNorm(residual + self.dense(F.dropout(x, self.dropout_p, self.training)))"),
    mistake("N9", "add_norm", BERT, "the sub-layer's own output as its residual", "the residual is what went into the "
            "sub-layer: look at the order of arguments", "residual + F.dropout(self.dense(x)",
            "x + F.dropout(self.dense(x)"),
    mistake("N10", "add_norm", BERT, "a dense layer over the sum", "only x goes through the dense layer", _ADD_NORM,
            "self.LayerNorm(F.dropout(self.dense(x + residual), self.dropout_p, self.training))"),
    mistake("N11", "add_norm", BERT, "a LayerNorm with eps 1e-5 instead of 1e-12", "pass eps=config.layer_norm_eps",
            _OWN_NORM, _OWN_NORM.replace("config.layer_norm_eps", "1e-5")),
    mistake("N12", "add_norm", BERT, "a dense layer over the residual instead of over x", "x goes through the dense layer",
            _ADD_NORM, "self.LayerNorm(x + F.dropout(self.dense(residual), self.dropout_p, self.training))"),
    mistake("L1", "layer", BERT, "a GELU by tanh", "BERT has the exact GELU, with erf", "\"gelu\": F.gelu,",
            "\"gelu\": _TANH_GELU,"),
    mistake("L2", "layer", BERT, "a ReLU", "BERT has a GELU", "\"gelu\": F.gelu,", "\"gelu\": F.relu,"),
    mistake("L3", "layer", BERT, "no activation", "GELU stands between the two dense layers",
            "self.activation(self.intermediate[\"dense\"](hidden))", "self.intermediate[\"dense\"](hidden)"),
    mistake("L4", "layer", BERT, "a GELU by x sigmoid(1.702 x)", "BERT has the exact GELU, with erf",
            "\"gelu\": F.gelu,", "\"gelu\": lambda x: x * (1.702 * x).sigmoid(),"),
    mistake("L5", "layer", BERT, "two GELUs, one after the other", "once is enough: look in the layer and in its caller",
            "self.activation(self.intermediate[\"dense\"](hidden))",
            "self.activation(self.activation(self.intermediate[\"dense\"](hidden)))"),
    mistake("L6", "layer", BERT, "a second residual from the layer's input", "the second residual is the attention's "
            "output", _HALVES, _halves("attended = self.attention[\"output\"](context, hidden)",
                                       "self.activation(self.intermediate[\"dense\"](attended))")),
    mistake("L7", "layer", BERT, "the two LayerNorms exchanged", "attention.output has the first, output the second",
            _HALVES, "        first, second = self.attention[\"output\"].LayerNorm, self.output.LayerNorm\n"
            "        self.attention[\"output\"].LayerNorm, self.output.LayerNorm = second, first\n" + _halves(
                "hidden = self.attention[\"output\"](context, hidden)").replace(
                "        return self.output(wide, hidden), weights",
                "        result = self.output(wide, hidden)\n"
                "        self.attention[\"output\"].LayerNorm, self.output.LayerNorm = first, second\n"
                "        return result, weights")),
    mistake("L8", "layer", BERT, "attention that does not get the mask", "pass the mask on",
            "self.attention[\"self\"](hidden, mask)", "self.attention[\"self\"](hidden, mask | True)"),
    mistake("L9", "layer", BERT, "no add-norm after the attention", "each half of a layer ends with its own", _HALVES,
            _halves("hidden = context")),
    mistake("L10", "layer", BERT, "the feed-forward half left out", "a layer has two halves", _HALVES,
            _halves(last="hidden")),
    mistake("M1", "model", BERT, "a pooler over the last token", "the pooler reads [CLS], the first token", _POOLED,
            "self.pooler(states[-1][:, -1])"),
    mistake("M2", "model", BERT, "a pooler over the mean of all positions", "the pooler reads [CLS], the first token",
            _POOLED, "self.pooler(states[-1].mean(dim=1))"),
    mistake("M3", "model", BERT, "a pooler without tanh", "tanh follows the pooler's dense layer",
            "self.dense(first).tanh()", "self.dense(first)"),
    mistake("M4", "model", BERT, "layers that all read the embeddings", "each layer reads the one below",
            "            hidden, weights = layer(hidden, mask)\n            states.append(hidden)",
            "            output, weights = layer(hidden, mask)\n            states.append(output)"),
    mistake("M5", "model", BERT, "positions that start at 1", "the first token has position 0",
            "torch.arange(input_ids.shape[1], device", "torch.arange(1, input_ids.shape[1] + 1, device"),
    mistake("M6", "model", WEIGHTS, "gamma and beta exchanged", "gamma is LayerNorm's weight, beta its bias",
            "{\"gamma\": \"weight\", \"beta\": \"bias\"}", "{\"gamma\": \"bias\", \"beta\": \"weight\"}"),
    mistake("M7", "model", WEIGHTS, "names that keep the prefix bert.", "prefixes of wrappers go",
            "(bert\\.|mpnet\\.|encoder", "(mpnet\\.|encoder"),
    mistake("M8", "model", BERT, "an encoder without its mask", "pass the attention mask to the layers",
            "self.run_layers(self.layers(), embedded, mask)", "self.run_layers(self.layers(), embedded, mask | True)"),
    mistake("M9", "model", BERT, "the first layer's output as the model's", "the last layer's output is the model's",
            "BertOutput(states[-1], self.pooler(states[-1][:, 0])", "BertOutput(states[0], self.pooler(states[0][:, 0])"),
    mistake("M10", "model", BERT, "the same layer, three times", "each layer has its own weights",
            "return list(self.encoder[\"layer\"].children())",
            "return [self.encoder[\"layer\"][0]] * len(self.encoder[\"layer\"])"),
    mistake("M11", "model", BERT, "token types that the model does not pass on", "hand token_type_ids to the embeddings",
            "self.embeddings(input_ids, token_type_ids, position_ids)",
            "self.embeddings(input_ids, token_type_ids * 0, position_ids)"),
]

VARIANTS = [
    variant("A-sdpa", "attention", ATTENTION, "torch's own scaled_dot_product_attention",
            "    return F.dropout(weights, dropout_p) @ value, weights",
            "    bias = torch.zeros_like(scores).masked_fill(~mask[:, None, None, :], -1e30)\n"
            "    return F.scaled_dot_product_attention(query, key, value, bias, dropout_p), weights",
            "import torch.nn.functional as F\n", "import torch\nimport torch.nn.functional as F\n"),
    variant("A-infinity", "attention", ATTENTION, "minus infinity for masked scores", "MASKED_SCORE = -1e30",
            "MASKED_SCORE = -math.inf"),
    variant("A-10000", "attention", ATTENTION, "an additive mask of -10,000", _FILL,
            "scores + (~mask[:, None, None, :]).to(scores.dtype) * -1e4"),
    variant("A-mask-then-scale", "attention", ATTENTION, "the mask added before the division",
            _SCALE, "(query @ key.transpose(-2, -1) + (~mask[:, None, None, :]) * -1e6) / math.sqrt(query.shape[-1])",
            f"    scores = {_FILL}\n", ""),
    variant("A-einsum", "attention", ATTENTION, "einsum", "query @ key.transpose(-2, -1)",
            "torch.einsum(\"bhid,bhjd->bhij\", query, key)", "import torch.nn.functional as F\n",
            "import torch\nimport torch.nn.functional as F\n"),
    variant("A-scaled-query", "attention", ATTENTION, "a scaled query", _SCALE,
            "(query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)"),
    variant("A-exp", "attention", ATTENTION, "a softmax by hand", _SOFTMAX,
            "scores = scores - scores.amax(dim=-1, keepdim=True)\n"
            "    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"),
    variant("H-view", "heads", ATTENTION, "view and permute", _SPLIT,
            "projected.view(*projected.shape[:2], self.num_attention_heads, -1).permute(0, 2, 1, 3)"),
    variant("H-loop", "heads", ATTENTION, "head after head", _MERGE,
            "torch.cat([context[:, head] for head in range(context.shape[1])], dim=-1), weights",
            "import torch.nn.functional as F\n", "import torch\nimport torch.nn.functional as F\n"),
    variant("E-order", "embeddings", BERT, "the sum in another order", _SUM,
            "(self.position_embeddings(position_ids) + self.word_embeddings(input_ids)\n"
            "                 + self.token_type_embeddings(token_type_ids))"),
    variant("N-by-hand", "add_norm", BERT, "a LayerNorm by hand", _ADD_NORM,
            "(lambda s: (s - s.mean(-1, keepdim=True)) / (s.var(-1, unbiased=False, keepdim=True) + self.LayerNorm.eps)"
            ".sqrt() * self.LayerNorm.weight + self.LayerNorm.bias)(residual + F.dropout(self.dense(x), "
            "self.dropout_p, self.training))"),
    variant("L-erf", "layer", BERT, "a GELU written with erf", "\"gelu\": F.gelu,",
            "\"gelu\": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),"),
    variant("M-tanh", "model", BERT, "torch.tanh", "self.dense(first).tanh()", "torch.tanh(self.dense(first))"),
]
