"""Views of the shared encoder: shallow copies in which a task's own parts stand in place of some of the encoder's.

Everything else in a view is the encoder's own, so both train it.
"""
import copy
from typing import Any

from torch import nn

from minbert.bert import BertModel


def with_children(module: nn.Module, **children: Any) -> Any:
    """Return a shallow copy of a module with other children. The module itself stays as it is."""
    view = copy.copy(module)
    view._modules = {**module._modules, **children}
    return view


def view_with(encoder: BertModel, layers: list[Any], **children: Any) -> BertModel:
    """Return a shallow copy of an encoder with other layers and children. The encoder itself stays as it is."""
    view = with_children(encoder, **children)
    view.layers = lambda: layers
    return view
