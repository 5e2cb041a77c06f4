"""Linear and LayerNorm that hold float32 parameters and compute in the type of their input.

A parameter needs all its bits: an optimizer's steps are a hundred thousand times smaller than it is. An activation does
not, and processors with a matrix unit multiply bfloat16 (eight significant bits) many times faster than float32. Given
a float32 input these are torch's own layers.
"""
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)
