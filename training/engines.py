"""Which implementation trains: the lesson in minbert/ ("plain"), or its faster twin in engine/ ("engine").

Everything else in training/ asks one of these two classes. Only this file imports engine/.
"""
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch

from minbert.adamw import AdamW
from minbert.bert import BertModel
from minbert.config import BertConfig
from training.recipe import OptimizerRecipe


class Engine(Protocol):
    """List what training asks of an implementation."""

    name: str
    model: type[BertModel]
    sparse: bool  # the word embeddings may hand over sparse gradients

    def resolve(self, precision: str, config: BertConfig, batch: int, length: int, device: torch.device, cache: Path
                ) -> tuple[str, str]:
        """Decide what "auto" means for batches of this shape.

        Returns the precision's name, and a line that says why.
        """

    def use(self, precision: str, encoder: BertModel):
        """Let the encoder, and this process's matrix products, compute at a precision."""

    def optimizer(self, groups: Iterable[dict], settings: OptimizerRecipe, steps: int, device: torch.device
                  ) -> tuple[AdamW, str]:
        """Make the optimizer of a stage of so many steps, and a few words that say which form it has."""

    def step(self, optimizer: Any, scale: float):
        """Take one optimizer step with all gradients multiplied by `scale`."""


class PlainEngine:
    """Train with minbert/ alone, in float32.

    >>> PlainEngine().model.__name__
    'BertModel'
    """

    name = "plain"
    model: type[BertModel] = BertModel
    sparse = False

    def resolve(self, precision: str, config: BertConfig, batch: int, length: int, device: torch.device, cache: Path
                ) -> tuple[str, str]:
        """Return float32. Raise ValueError if the recipe asks for anything else. See Engine.resolve."""
        if precision not in ("auto", "float32"):
            raise ValueError(f"precision is {precision!r}; the plain engine computes in float32")
        return "float32", "precision float32 (the plain engine has no other)"

    def use(self, precision: str, encoder: BertModel):
        """Let this process's matrix products be exact."""
        torch.set_float32_matmul_precision("highest")

    def optimizer(self, groups: Iterable[dict], settings: OptimizerRecipe, steps: int, device: torch.device
                  ) -> tuple[AdamW, str]:
        """Make minbert's AdamW. See Engine.optimizer."""
        return AdamW(groups, **adamw_settings(settings)), "AdamW as in minbert/adamw.py"

    def step(self, optimizer: Any, scale: float):
        """Multiply the gradients, then step."""
        if scale != 1:
            torch._foreach_mul_([parameter.grad for group in optimizer.param_groups for parameter in group["params"]
                                 if parameter.grad is not None], scale)
        optimizer.step()


class FastEngine:
    """Train with engine/.

    >>> FastEngine().model.__name__
    'FastBertModel'
    """

    name = "engine"
    sparse = True

    def __init__(self):
        from engine.bert import FastBertModel

        self.model: type[BertModel] = FastBertModel

    def resolve(self, precision: str, config: BertConfig, batch: int, length: int, device: torch.device, cache: Path
                ) -> tuple[str, str]:
        """Measure which precision is fastest, where the recipe says "auto". See Engine.resolve."""
        from engine.precision import asked, fastest

        if precision != "auto":
            return precision, asked(precision, config, batch, length, device, cache)
        chosen, message = fastest(config, batch, length, device, cache)
        return chosen.name, message

    def use(self, precision: str, encoder: Any):
        """Set the encoder's precision and this process's products."""
        from engine.precision import BY_NAME, set_products

        encoder.precision = BY_NAME[precision]
        set_products(encoder.precision)

    def optimizer(self, groups: Iterable[dict], settings: OptimizerRecipe, steps: int, device: torch.device
                  ) -> tuple[AdamW, str]:
        """Make the engine's AdamW: compiled, in slices, or for many tensors at once. See Engine.optimizer."""
        from engine.adamw import FastAdamW, compiles

        groups = list(groups)
        count = sum(parameter.numel() for group in groups for parameter in group["params"])
        compile, form = compiles(settings.compile, steps * count, device)
        return FastAdamW(groups, **adamw_settings(settings), compile=compile), form

    def step(self, optimizer: Any, scale: float):
        """Step, with the scale inside the update."""
        optimizer.step(scale=scale)


def adamw_settings(settings: OptimizerRecipe) -> dict[str, Any]:
    """Return the arguments of AdamW that a recipe sets for all groups alike."""
    return {"betas": (settings.betas[0], settings.betas[1]), "eps": settings.eps,
            "correct_bias": settings.correct_bias, "efficient": settings.efficient}


def make_engine(name: str) -> Engine:
    """Make the engine that a command names: "engine" or "plain"."""
    return PlainEngine() if name == "plain" else FastEngine()
