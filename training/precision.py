"""How many bits a training step computes with. Parameters, their gradients, losses and AdamW are float32 throughout.

- float32: everything.
- medium: matrix products round their inputs to bfloat16 where the processor has a unit for it, and add up in float32;
  elsewhere the same as float32. Evaluation computes so too, where training is not in float32.
- bfloat16: the encoder's layers compute in it, activations included; heads as at medium.
- auto: bfloat16 where the processor has a matrix unit for it (a GPU, or a CPU with AMX), medium on a CPU with bfloat16
  instructions, else float32.
"""
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from minbert.bert import BertModel

PRECISIONS = ("auto", "float32", "medium", "bfloat16")


def resolve(precision: str, device: torch.device) -> str:
    """What auto means on this machine; any other is what it says."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    able = torch.cpu.get_capabilities()
    return "bfloat16" if able.get("amx_bf16") else "medium" if able.get("avx512_bf16") else "float32"


def set_products(precision: str):
    """Matrix products of float32 inputs, for the whole process."""
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "medium")


@contextmanager
def computing(encoder: BertModel, precision: str) -> Iterator[None]:
    """Inside, this encoder's forward and backward passes compute at the (resolved) precision."""
    before = torch.get_float32_matmul_precision(), encoder.compute_dtype
    set_products(precision)
    encoder.compute_dtype = torch.bfloat16 if precision == "bfloat16" else None
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        encoder.compute_dtype = before[1]
