"""The names and defaults of the courses' starter code, so that their own checks run against this project.

In the course's sanity_check.py and optimizer_test.py, two import lines change and nothing else:

    from course.starter import BertModel
    from course.starter import AdamW
"""
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

import minbert.adamw
import minbert.bert
from minbert.pretrained import fetch
from minbert.weights import load_encoder


class BertModel(minbert.bert.BertModel):
    """Encode as minbert's BertModel does, and return what the starter code returns: a dict."""

    @classmethod
    def from_pretrained(cls, name: str | Path) -> "BertModel":
        """Load an encoder in evaluation mode. name: a directory, a hub id, or all-MiniLM-L6-v2."""
        return load_encoder(fetch(str(name)), cls)[0]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        """Return last_hidden_state [B, T, H] and pooler_output [B, H] by name. input_ids, attention_mask: [B, T]."""
        output = super().forward(input_ids, attention_mask)
        return {"last_hidden_state": output.last_hidden_state, "pooler_output": output.pooler_output}


class AdamW(minbert.adamw.AdamW):
    """Be minbert's AdamW with the starter code's defaults: eps 1e-6, no weight decay."""

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6, weight_decay: float = 0.0,
                 correct_bias: bool = True):
        super().__init__(params, lr, betas, eps, weight_decay, correct_bias)
