"""AdamW, faster. Must equal minbert/adamw.py.

As minbert writes it, an update passes over memory nine times. Three forms here pass less often:
- in slices: a large tensor on a CPU is updated piece by piece. A piece stays in the cache, where passes are cheap.
- compiled: torch translates one update to C++, which passes once. This needs a C++ compiler.
- foreach: many tensors are updated by one operation. This is the fast form for small tensors, and on a GPU.
"""
import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from minbert.adamw import AdamW

# Elements of a slice. Five tensors of half a megabyte fit the second-level caches of two cores, and starting the
# threads for one slice does not show. Tensors that are much smaller are updated together.
SLICE = 1 << 17
SMALL = SLICE // 8

# Compiling pays from so many updates on (steps times parameters). An update is some 1.5 ns faster, and the compiler
# takes up to half a minute the first time on a machine.
COMPILE_FROM = 2e10


def update(value: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, scale: float, beta1: float, beta2: float,
           decay: float, step_size: float, eps: float):
    """Update one tensor in place. `compiled_update` compiles this function.

    Args:
        value, gradient, mean, square: tensors of one shape: the parameter, its gradient, the averages m and v.
        scale: a factor on the gradient.
        beta1, beta2: how much of m and v is kept.
        decay: the fraction by which the value shrinks.
        step_size, eps: see `FastAdamW._scales`.
    """
    gradient = scale * gradient
    mean.lerp_(gradient, 1 - beta1)
    square.mul_(beta2).add_((1 - beta2) * gradient * gradient)  # in this order the square of 1e20 does not overflow
    value.mul_(1 - decay).sub_(step_size * mean / (square.clamp_min(torch.finfo(square.dtype).tiny).sqrt() + eps))


@cache
def compiled_update() -> Callable:
    """Return `update` as compiled code for tensors of any length. Raise ValueError if there is no C++ compiler."""
    from torch._inductor.exc import InductorError  # here: importing the compiler alone takes two seconds

    compiled = torch.compile(update, dynamic=True, fullgraph=True)
    value, gradient, mean, square = torch.ones(4, 1000)
    try:
        compiled(value, gradient, mean, square, 0.5, 0.9, 0.999, 0.01, 0.1, 1e-8)
    except InductorError as error:
        raise ValueError(f"AdamW with compile: {str(error).splitlines()[0]} (expected a C++ compiler, such as g++)"
                         ) from None
    except OSError as error:
        raise ValueError(f"AdamW with compile: the compiler's cache cannot be written ({error}); set "
                         "TORCHINDUCTOR_CACHE_DIR to a folder that can be") from None
    return compiled


def update_in_slices(value: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, scale: float, beta1: float,
                     beta2: float, decay: float, step_size: float, eps: float):
    """Do what `update` does to flat tensors, slice by slice.

    Args:
        value, gradient, mean, square, scale, beta1, beta2, decay, step_size, eps: as in `update`.
    """
    tiny = torch.finfo(value.dtype).tiny
    # One scratch serves all slices. Fresh memory for each would cost more than the root itself.
    scratch = torch.empty(min(SLICE, value.numel()), dtype=value.dtype, device=value.device)
    for p, g, m, v in zip(*(tensor.split(SLICE) for tensor in (value, gradient, mean, square)), strict=True):
        free = scratch[: len(v)]
        if scale != 1:
            g = torch.mul(g, scale, out=free)
        p.mul_(1 - decay)
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        # Processors take the root of an exact zero twenty times slower, and a table of embeddings is full of zeros. The
        # root of the smallest normal number vanishes beside eps.
        denominator = torch.clamp_min(v, tiny, out=free).sqrt_()
        p.addcdiv_(m, denominator.add_(eps), value=-step_size)


def compiles(choice: bool | str, updates: float, device: torch.device) -> tuple[bool, str]:
    """Decide whether to compile AdamW.

    Args:
        choice: the recipe's: True, False or "auto".
        updates: steps times parameters.
        device: where training runs.

    Returns:
        Whether to compile, and a few words that say which form is used.
    """
    if device.type != "cpu":
        return False, "AdamW for many tensors at once"
    if choice == "auto":
        if updates < COMPILE_FROM:
            return False, "AdamW in slices"
        try:
            compiled_update()
        except ValueError as error:
            return False, f"AdamW in slices ({error})"
        return True, "AdamW compiled"
    return bool(choice), "AdamW compiled" if choice else "AdamW in slices"


class FastAdamW(AdamW):
    """Update parameters as minbert's AdamW does, faster. The settings are the same, with two more.

    Args:
        foreach: update many tensors by one operation (True) or one by one (False). None decides by device and size.
        compile: update by compiled code what is not updated together. Raises ValueError without a C++ compiler.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = FastAdamW([weight], lr=0.1, weight_decay=0.0)
    >>> weight.grad = torch.tensor([5.0])
    >>> optimizer.step()
    >>> round(weight.item(), 4)
    0.9
    """

    def __init__(self, params: Iterable, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.01, correct_bias: bool = True, efficient: bool = False,
                 foreach: bool | None = None, compile: bool = False):
        super().__init__(params, lr, betas, eps, weight_decay, correct_bias, efficient)
        self.foreach, self.compile = foreach, compile

    @torch.no_grad()
    def step(self, closure: Callable | None = None, scale: float = 1.0):
        """Take one step. scale: a factor on every gradient, say to clip it. It spares a pass over all gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            together: dict[tuple, list[Tensor]] = {}  # parameters that one multi-tensor operation can update
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                step = self._state_of(parameter)["step"]
                small = parameter.device.type != "cpu" or parameter.numel() <= SMALL
                if small if self.foreach is None else self.foreach:
                    together.setdefault((parameter.device, parameter.dtype, step), []).append(parameter)
                else:
                    self._update_alone(parameter, scale, group)
            for parameters in together.values():
                self._update_together(parameters, scale, group)
        return loss

    @staticmethod
    def _scales(step: int, group: dict[str, Any]) -> tuple[float, float]:
        """Return (step_size, eps) so that an update is -step_size * m / (sqrt(v) + eps).

        The published form is m^ / (sqrt(v^) + eps). Multiplied through by the root of v's correction, it has this form
        as well, with a scaled eps. The efficient form leaves eps as it is. step: counted from 1.
        """
        beta1, beta2 = group["betas"]
        if not group["correct_bias"]:
            return group["lr"], group["eps"]
        root = math.sqrt(1 - beta2**step)
        return group["lr"] * root / (1 - beta1**step), group["eps"] * (1.0 if group["efficient"] else root)

    def _update_alone(self, parameter: Tensor, scale: float, group: dict[str, Any]):
        """Update one parameter, in slices or by compiled code."""
        state = self.state[parameter]
        # The parameters of a model are contiguous. Any other tensor is updated as a copy and written back.
        tensors: list[Any] = [parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]]
        whole = [tensor.contiguous() for tensor in tensors]
        update_one = compiled_update() if self.compile else update_in_slices
        value, gradient, mean, square = (tensor.detach().view(-1) for tensor in whole)
        beta1, beta2 = group["betas"]
        step_size, eps = self._scales(state["step"], group)
        update_one(value, gradient, mean, square, scale, beta1, beta2, group["lr"] * group["weight_decay"], step_size,
                   eps)
        for tensor, copy in zip(tensors, whole, strict=True):
            if copy is not tensor:
                tensor.copy_(copy)

    def _update_together(self, parameters: list[Tensor], scale: float, group: dict[str, Any]):
        """Do the same arithmetic to all parameters at once, line by line. All have taken equally many steps."""
        gradients: Any = [parameter.grad for parameter in parameters]
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
        denominators = torch._foreach_clamp_min(squares, torch.finfo(parameters[0].dtype).tiny)
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, eps)
        torch._foreach_addcdiv_(parameters, means, denominators, value=-step_size)
