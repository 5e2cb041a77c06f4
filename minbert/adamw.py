"""AdamW from scratch: Adam (Kingma & Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov & Hutter 2019).

Three variants of one step: bias-corrected as published; the course's "efficient" form (Kingma & Ba, end of section 2),
which folds both corrections into the step size and so leaves eps uncorrected; and none.

`update` is the lesson. As it stands it would take nine trips to memory, so on a CPU a tensor is updated in slices that
stay in the cache, where passes are cheap; or, with `compile`, `update` is translated to C++ that passes once.
"""
import math
from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor

# Elements a slice: 5 tensors of half a megabyte, what the second-level caches of two cores hold, and so many that
# starting the threads for one does not show. Tensors much smaller than that are updated together.
SLICE = 1 << 17
SMALL = SLICE // 8


def update(value: Tensor, grad: Tensor, mean: Tensor, square: Tensor, scale: float, beta1: float, beta2: float,
           decay: float, step_size: float, eps: float):
    """One step of one tensor, in place. scale: of the gradient. decay: of the value, a fraction. step_size, eps: see
    AdamW._scales."""
    grad = scale * grad
    mean.lerp_(grad, 1 - beta1)  # m = beta1 m + (1 - beta1) g
    square.lerp_(grad * grad, 1 - beta2)  # v = beta2 v + (1 - beta2) g^2
    value.mul_(1 - decay).sub_(step_size * mean / (square.sqrt() + eps))


@cache
def compiled_update() -> Callable:
    """`update` in one pass over memory, whatever the tensors' length. Raises ValueError without a C++ compiler."""
    from torch._inductor.exc import InductorError  # here: the compiler's import alone takes two seconds

    compiled = torch.compile(update, dynamic=True, fullgraph=True)
    try:
        compiled(*torch.ones(4, 1000), 0.5, 0.9, 0.999, 0.01, 0.1, 1e-8)
    except InductorError as error:
        raise ValueError(f"AdamW with compile: {str(error).splitlines()[0]} (expected a C++ compiler, such as g++)"
                         ) from None
    return compiled


def update_in_slices(value: Tensor, grad: Tensor, mean: Tensor, square: Tensor, scale: float, beta1: float,
                     beta2: float, decay: float, step_size: float, eps: float):
    """`update` of flat tensors, slice by slice."""
    tiny = torch.finfo(value.dtype).tiny
    # One scratch for all slices: fresh memory for each would cost more than the root itself.
    scratch = torch.empty(min(SLICE, value.numel()), dtype=value.dtype, device=value.device)
    for p, g, m, v in zip(*(tensor.split(SLICE) for tensor in (value, grad, mean, square)), strict=True):
        free = scratch[: len(v)]
        if scale != 1:
            g = torch.mul(g, scale, out=free)
        p.mul_(1 - decay)
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        # Processors take the root of an exact zero twenty times slower, and a table of embeddings is full of them; the
        # smallest normal number's root vanishes beside eps.
        denominator = torch.clamp_min(v, tiny, out=free).sqrt_()
        p.addcdiv_(m, denominator.add_(eps), value=-step_size)


class AdamW(torch.optim.Optimizer):
    """lr: step size; betas: decay of the two moment averages; eps: added to the denominator; weight_decay: fraction of
    lr by which a parameter shrinks each step, apart from its gradient. correct_bias: divide the moments by 1 - beta^t.
    efficient: the folded form. A parameter whose gradient is None is left alone; one whose gradient is zero decays.
    foreach: update many tensors by one multi-tensor operation (fast on a GPU, and for small tensors) instead of tensor
    by tensor in slices (fast for large ones on a CPU); None chooses by device and size.
    compile: what is not updated together is updated by compiled code instead of in slices, twice as fast. Needs a C++
    compiler, and some seconds for the first step.
    """

    def __init__(self, params: Iterable, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.01, correct_bias: bool = True, efficient: bool = False,
                 foreach: bool | None = None, compile: bool = False):
        if not lr >= 0:
            raise ValueError(f"lr is {lr!r}; expected 0 or more")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas are {betas!r}; expected 0 <= beta < 1")
        if not eps >= 0:
            raise ValueError(f"eps is {eps!r}; expected 0 or more")
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay is {weight_decay!r}; expected 0 or more")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "correct_bias": correct_bias, "efficient": efficient, "foreach": foreach,
                                  "compile": compile})

    @torch.no_grad()
    def step(self, closure=None, scale: float = 1.0):
        """scale: multiplies every gradient on the way, say to clip it; spares a pass over all gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            together: dict[tuple, list[Tensor]] = {}  # parameters that one multi-tensor operation can take
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self._state_of(parameter)
                state["step"] += 1
                small = parameter.device.type != "cpu" or parameter.numel() <= SMALL
                if small if group["foreach"] is None else group["foreach"]:
                    key = (parameter.device, parameter.dtype, state["step"])
                    together.setdefault(key, []).append(parameter)
                else:
                    self._update_alone(parameter, scale, group)
            for parameters in together.values():
                self._update_together(parameters, scale, group)
        return loss

    def _state_of(self, parameter: Tensor) -> dict:
        if parameter.grad.is_sparse:
            raise ValueError("AdamW needs a dense gradient: with decay and momentum every row moves at every step")
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        return state

    @staticmethod
    def _scales(step: int, group: dict) -> tuple[float, float]:
        """(step size, eps) at a step counted from 1, for an update of -step_size * m / (sqrt(v) + eps).

        The published m^ / (sqrt(v^) + eps), multiplied through by the root of v's correction, has that form as well;
        the efficient one differs in that it leaves eps as it is.
        """
        beta1, beta2 = group["betas"]
        if not group["correct_bias"]:
            return group["lr"], group["eps"]
        root = math.sqrt(1 - beta2**step)
        return group["lr"] * root / (1 - beta1**step), group["eps"] * (1.0 if group["efficient"] else root)

    def _update_alone(self, parameter: Tensor, scale: float, group: dict):
        state = self.state[parameter]
        # Parameters of a model are contiguous; any other is updated as a copy and written back.
        values = parameter.contiguous()
        tensors = (values, parameter.grad.contiguous(), state["exp_avg"], state["exp_avg_sq"])
        update_one = compiled_update() if group["compile"] else update_in_slices
        update_one(*(tensor.detach().view(-1) for tensor in tensors), scale, *group["betas"],
                   group["lr"] * group["weight_decay"], *self._scales(state["step"], group))
        if values is not parameter:
            parameter.copy_(values)

    def _update_together(self, parameters: list[Tensor], scale: float, group: dict):
        """The same arithmetic, each line for all parameters at once; all have taken equally many steps."""
        gradients = [parameter.grad for parameter in parameters]
        if scale != 1:
            gradients = torch._foreach_mul(gradients, scale)
        means = [self.state[parameter]["exp_avg"] for parameter in parameters]
        squares = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
        beta1, beta2 = group["betas"]
        step_size, eps = self._scales(self.state[parameters[0]]["step"], group)
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, eps)
        torch._foreach_addcdiv_(parameters, means, denominators, value=-step_size)


def parameter_groups(named_parameters: Iterable[tuple[str, Tensor]], weight_decay: float) -> list[dict]:
    """Two groups: matrices, which decay, and vectors (biases and LayerNorm's scale), which do not.

    Decay pulls towards zero, and a LayerNorm scale of zero, or a forced zero bias, is no prior that anyone wants.
    """
    decayed, kept = [], []
    for name, parameter in named_parameters:
        plain = name.endswith("bias") or "LayerNorm" in name or parameter.ndim < 2
        (kept if plain else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
