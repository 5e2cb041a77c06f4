"""Gradient surgery: K tasks' gradients -> K weights, from their Gram matrix alone.

Every method here is a weighted sum of the tasks' gradients, and its weights depend only on their inner products. So a
step of any of them costs one K x K matrix: what follows never sees a gradient. Each function takes `gram` [K, K],
float64, with no zero rows, and returns weights [K]; `combine_weights` is the door, which deals with the degenerate
cases once for all.
"""
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from training.choices import COMBINERS


def sum_weights(gram: Tensor) -> Tensor:
    """Add the gradients up."""
    return torch.ones(len(gram), dtype=gram.dtype)


def mean_weights(gram: Tensor) -> Tensor:
    """Average the gradients."""
    return torch.full((len(gram),), 1 / len(gram), dtype=gram.dtype)


def pcgrad_weights(gram: Tensor, generator: torch.Generator) -> Tensor:
    """Project each gradient off those it conflicts with, in random order (PCGrad, Yu et al. 2020, algorithm 1).

    gram: [K, K]. generator: draws the order, so that a resumed run draws the same.
    """
    mix = torch.eye(len(gram), dtype=gram.dtype)  # row i: gradient i, written in the original gradients
    for i in range(len(gram)):
        for j in torch.randperm(len(gram), generator=generator).tolist():
            conflict = mix[i] @ gram[j]  # <projected gradient i, original gradient j>
            # Other tasks only: from three tasks on, a projected gradient can come to oppose its own original.
            if j != i and conflict < 0:
                mix[i, j] -= conflict / gram[j, j]
    return mix.sum(dim=0)


def gradvac_weights(gram: Tensor, generator: torch.Generator, targets: Tensor, beta: float = 0.01) -> Tensor:
    """Lift each pair's cosine to a running target, not only up to zero (GradVac, Wang et al. 2021, eqs. 4 and 5).

    Args:
        gram: [K, K].
        generator: draws the order.
        targets: [K, K] running mean of each pair's cosine, updated in place.
        beta: the rate of that mean.
    """
    norms = gram.diagonal().sqrt()
    mix = torch.eye(len(gram), dtype=gram.dtype)
    for i in range(len(gram)):
        for j in torch.randperm(len(gram), generator=generator).tolist():
            if j == i:
                continue
            own_norm = (mix[i] @ gram @ mix[i]).clamp_min(0).sqrt()
            if own_norm == 0:
                continue
            cosine = (mix[i] @ gram[j] / (own_norm * norms[j])).clamp(-1, 1)
            target = targets[i, j]
            if cosine < target:
                scale = own_norm * (target * (1 - cosine**2).sqrt() - cosine * (1 - target**2).sqrt())
                mix[i, j] += scale / (norms[j] * (1 - target**2).sqrt())
            targets[i, j] = (1 - beta) * target + beta * cosine
    return mix.sum(dim=0)


def _nonnegative_minimum(gram: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """argmin over v >= 0 of v'Gv / 2 + l'v, as a non-negative least squares problem (G = R'R, R'c = -l)."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > values.max() * 1e-14
    root = (vectors[:, kept] * np.sqrt(values[kept])).T  # R
    inverse = (vectors[:, kept] / np.sqrt(values[kept])).T  # R'^+
    return optimize.nnls(root, -inverse @ linear)[0]


def mgda_weights(gram: Tensor) -> Tensor:
    """MGDA (Désidéri 2012; Sener & Koltun 2018, eq. 3): the shortest vector in the gradients' convex hull.

    The minimum of |sum u_k g_k|^2 / 2 - sum u_k over u >= 0, scaled to sum to 1, is that vector.
    """
    # The ridge keeps the problem bounded where the hull touches zero, and then picks the weights that reach it.
    ridge = 1e-12 * float(gram.diagonal().max()) * np.eye(len(gram))
    weights = torch.from_numpy(_nonnegative_minimum(gram.numpy() + ridge, -np.ones(len(gram))))
    return weights / weights.sum()


def cagrad_weights(gram: Tensor, c: float = 0.4) -> Tensor:
    """Find the best worst-case descent within c |g0| of the mean gradient g0 (CAGrad, Liu et al. 2021, eq. 4)."""
    size = len(gram)
    matrix = gram.numpy()
    mean = np.full(size, 1 / size)
    radius = c * np.sqrt(max(mean @ matrix @ mean, 0.0))

    def worst_case(w: np.ndarray) -> tuple[float, np.ndarray]:
        norm = np.sqrt(max(w @ matrix @ w, 1e-30))
        return w @ matrix @ mean + radius * norm, matrix @ mean + radius * (matrix @ w) / norm

    found = optimize.minimize(worst_case, mean, jac=True, bounds=[(0, 1)] * size, method="SLSQP",
                              constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
                              options={"ftol": 1e-14, "maxiter": 200})
    w = np.clip(found.x, 0, None)
    w /= w.sum()
    norm = np.sqrt(max(w @ matrix @ w, 0.0))
    # Where the gradients can cancel out, no direction helps all of them: the mean is as good as any.
    step = radius / norm if norm > 1e-12 * np.sqrt(matrix.diagonal().max()) else 0.0
    return torch.from_numpy(mean + step * w)


def imtl_g_weights(gram: Tensor) -> Tensor:
    """Combine so that the projection onto every task's direction is the same (IMTL-G, Liu et al. 2021b, eq. 6)."""
    norms = gram.diagonal().sqrt()
    projections = gram / norms[:, None]  # [i, k] = <g_k, unit g_i>
    equations = torch.cat([projections[:1] - projections[1:], torch.ones(1, len(gram), dtype=gram.dtype)])
    # Scaled rows, so that the sum-to-one row weighs no more than the others at any size of gradient.
    equations[:-1] /= norms.max()
    right = torch.zeros(len(gram), dtype=gram.dtype)
    right[-1] = 1
    return torch.linalg.pinv(equations, rtol=1e-10) @ right


def nash_weights(gram: Tensor) -> Tensor:
    """Nash-MTL (Navon et al. 2022, claim 3.2): weights a > 0 with G a = 1 / a, the bargaining solution.

    They minimise the convex a'Ga / 2 - sum log a, which damped Newton steps solve exactly; the paper approximates.
    Scaled so that the update is as long as the mean gradient's bound sqrt(K) of the bargain (|sum a g|^2 = K).
    """
    matrix = gram.numpy() + 1e-10 * float(gram.diagonal().mean()) * np.eye(len(gram))
    a = 1 / np.sqrt(matrix.diagonal() * len(gram))

    def objective(x: np.ndarray) -> float:
        return x @ matrix @ x / 2 - np.log(x).sum()

    for _ in range(100):
        gradient = matrix @ a - 1 / a
        if np.abs(gradient * a).max() < 1e-12:
            break
        direction = -np.linalg.solve(matrix + np.diag(1 / a**2), gradient)
        size = 1.0
        while (a + size * direction).min() <= 0 or (
                objective(a + size * direction) > objective(a) + 1e-4 * size * gradient @ direction):
            size /= 2
            if size < 1e-12:
                break
        if size < 1e-12:
            break
        a = a + size * direction
    return torch.from_numpy(a)


def aligned_weights(gram: Tensor) -> Tensor:
    """Aligned-MTL (Senushkin et al. 2023, algorithm 1): gradients turned orthogonal and equally long, then summed.

    All singular values of the gradient matrix are set to the smallest one that is not zero.
    """
    values, vectors = torch.linalg.eigh(gram)
    kept = values > values.max() * 1e-12
    values, vectors = values[kept], vectors[:, kept]
    balance = values.min().sqrt() * vectors @ torch.diag(values.rsqrt()) @ vectors.T
    return balance @ torch.full((len(gram),), 1 / len(gram), dtype=gram.dtype)


def upgrad_weights(gram: Tensor) -> Tensor:
    """UPGrad (Quinton & Rey 2024, eq. 5): each gradient moved the least so that it conflicts with none, averaged.

    The projection of g_i onto the cone of non-conflicting directions is g_i + sum v_j g_j with the v >= 0 that make it
    shortest (its dual).
    """
    matrix = gram.numpy()
    weights = np.ones(len(matrix)) / len(matrix)
    for i in range(len(matrix)):
        weights += _nonnegative_minimum(matrix, matrix[i]) / len(matrix)
    return torch.from_numpy(weights)


# Methods that need the Gram matrix [K, K] alone. To add one is to add a function here, and its name to COMBINERS.
GRAM_METHODS = {"sum": sum_weights, "mean": mean_weights, "cagrad": cagrad_weights, "mgda": mgda_weights,
                "imtl_g": imtl_g_weights, "nash": nash_weights, "aligned": aligned_weights, "upgrad": upgrad_weights}
assert set(GRAM_METHODS) | {"pcgrad", "gradvac"} == set(COMBINERS)


@dataclass
class SurgeryState:
    """Hold what GradVac remembers between steps. The other methods remember nothing."""

    targets: dict[str, float] = field(default_factory=dict)  # "task>other task" -> running cosine


def combine_weights(method: str, gram: Tensor, names: list[str], generator: torch.Generator,
                    state: SurgeryState) -> Tensor:
    """Weigh K tasks' gradients by a method of COMBINERS.

    A task whose gradient is zero leaves the others as they are. A single task keeps its gradient.

    Args:
        method: of COMBINERS.
        gram: [K, K] inner products.
        names: of the tasks.
        generator: draws orders.
        state: what the method remembers between steps.

    Returns:
        Weights [K].

    Raises:
        FloatingPointError: with the task's name, if a gradient is not finite.
    """
    gram = gram.detach().to("cpu", torch.float64)
    for name, finite in zip(names, gram.diagonal().isfinite().tolist(), strict=True):
        if not finite:
            raise FloatingPointError(f"the gradient of task {name} is not finite")
    weights = torch.ones(len(gram), dtype=torch.float64)
    # A row whose square underflowed to zero counts as zero too: there is no direction left in it to work on.
    active = [k for k in range(len(gram)) if gram[k, k] > 0]
    if len(active) < 2:
        return weights
    inner = gram[active][:, active]
    # Weights do not depend on the gradients' common scale (but for Nash's, which then fix the step's length).
    inner = inner / inner.diagonal().mean()
    if method in ("pcgrad", "gradvac"):
        if method == "pcgrad":
            found = pcgrad_weights(inner, generator)
        else:
            keys = [[f"{names[i]}>{names[j]}" for j in active] for i in active]
            targets = torch.tensor([[state.targets.get(key, 0.0) for key in row] for row in keys], dtype=torch.float64)
            found = gradvac_weights(inner, generator, targets)
            state.targets.update({key: value for row, values in zip(keys, targets.tolist(), strict=True)
                                  for key, value in zip(row, values, strict=True)})
    else:
        found = GRAM_METHODS[method](inner)
    weights[active] = found
    return weights


def conflict_cosines(gram: Tensor, names: list[str]) -> dict[str, float]:
    """Map "sst/para" to the cosine of the two tasks' gradients, for the log. It is 0 if one of them is zero."""
    gram = gram.to("cpu", torch.float64)
    norms = gram.diagonal().clamp_min(0).sqrt()
    return {f"{names[i]}/{names[j]}": float(gram[i, j] / (norms[i] * norms[j])) if norms[i] * norms[j] > 0 else 0.0
            for i in range(len(names)) for j in range(i + 1, len(names))}
