"""AdamW: Adam (Kingma & Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).

Adam keeps two running averages for each number: m of its gradient and v of the gradient's square. A step divides m by
the root of v. Both averages start at zero and are too small at first. Dividing them by 1 - beta^t corrects that.
"""
import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor


class AdamW(torch.optim.Optimizer):
    """Update parameters by AdamW.

    Args:
        params: parameters, or groups of them with settings of their own.
        lr: the step size.
        betas: how much of each running average is kept at a step, for m and for v.
        eps: added to the denominator.
        weight_decay: the fraction of lr by which a parameter shrinks at each step, apart from its gradient.
        correct_bias: divide m and v by 1 - beta^t.
        efficient: fold both corrections into the step size (Kingma & Ba, end of section 2; the course's form).

    A parameter whose gradient is None is left alone. A parameter whose gradient is zero still decays.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = AdamW([weight], lr=0.1, weight_decay=0.0)
    >>> weight.grad = torch.tensor([5.0])
    >>> optimizer.step()
    >>> round(weight.item(), 4)  # the first step has the length lr, whatever the size of the gradient
    0.9
    """

    def __init__(self, params: Iterable, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.01, correct_bias: bool = True, efficient: bool = False):
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value!r}; expected 0 or more")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas are {betas!r}; expected 0 <= beta < 1")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "correct_bias": correct_bias, "efficient": efficient})

    @torch.no_grad()
    def step(self, closure: Callable | None = None):
        """Take one step with the gradients that backward left in `.grad`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, self._state_of(parameter), group)
        return loss

    def _state_of(self, parameter: Tensor) -> dict:
        """Return the parameter's step number, counted up, and its two averages. They are zero before the first step."""
        if parameter.grad is not None and parameter.grad.is_sparse:
            raise ValueError("AdamW needs a dense gradient: with decay and momentum every row moves at every step")
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state

    @staticmethod
    def _update(parameter: Tensor, state: dict, group: dict):
        """Update one parameter in place."""
        t, m, v, gradient = state["step"], state["exp_avg"], state["exp_avg_sq"], parameter.grad
        lr, (beta1, beta2), eps = group["lr"], group["betas"], group["eps"]
        parameter.mul_(1 - lr * group["weight_decay"])  # decay is not part of the gradient, so m and v never see it
        m.mul_(beta1).add_(gradient, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if not group["correct_bias"]:
            parameter.sub_(lr * m / (v.sqrt() + eps))
        elif group["efficient"]:
            step_size = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            parameter.sub_(step_size * m / (v.sqrt() + eps))
        else:
            m_hat = m / (1 - beta1**t)
            root_of_v_hat = v.sqrt() / math.sqrt(1 - beta2**t)  # v itself, divided, could overflow
            parameter.sub_(lr * m_hat / (root_of_v_hat + eps))
