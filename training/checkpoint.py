"""Checkpoints: tensors as safetensors, everything else as JSON. Never half written, never a pickle.

A state is two files, tensors and state.json; the JSON names the tensors' file and is renamed into place last, so at any
moment the folder holds one whole state or none.
"""
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from corpora.files import write_json
from minbert.weights import read_tensors, save_tensors
from tasks.heads import Exemplars
from training.runs import content_hash

STATE = "state.json"


def save_state(directory: Path, tensors: dict[str, Tensor], values: dict):
    """Replace the state in the directory. A checksum goes with it.

    Args:
        directory: of the run.
        tensors: by name.
        values: what JSON can hold.
    """
    directory.mkdir(parents=True, exist_ok=True)
    name = f"state-{values['stage']}-{values['step']}.safetensors"
    save_tensors(directory / name, tensors)
    write_json(directory / STATE, {**values, "tensors": name, "sha256": content_hash(directory / name)})
    for old in directory.glob("state-*.safetensors"):
        if old.name != name:
            old.unlink()


def load_state(directory: Path) -> tuple[dict[str, Tensor], dict] | None:
    """Return the state in the directory, or None if there is none. Raises ValueError where it is damaged."""
    path = directory / STATE
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        name, expected = values.pop("tensors"), values.pop("sha256")
        if name != f"state-{values['stage']}-{values['step']}.safetensors":
            raise ValueError("tensors is not the file of this stage and step")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({error}); delete the folder to start anew") from None
    if not (directory / name).is_file() or content_hash(directory / name) != expected:
        raise ValueError(f"{directory / name}: is not the file that was saved; delete the folder to start anew")
    return read_tensors(directory / name), values


def save_model(path: Path, model: nn.Module):
    """Save all parameters and buffers of encoder and tasks."""
    save_tensors(path, model.state_dict())


def fit_exemplars(model: nn.Module, tensors: dict[str, Tensor]):
    """Make room for as many exemplars as a saved model has: their number may come from the data.

    Args:
        model: encoder and tasks.
        tensors: of the saved model, by the model's names.
    """
    for name, module in model.named_modules():
        if isinstance(module, Exemplars) and (vectors := tensors.get(f"{name}.vectors")) is not None:
            module.resize(len(vectors))


def load_model(path: Path, model: nn.Module):
    """Load a checkpoint. Raise ValueError where a name or a shape differs: it fits its model exactly or not at all."""
    tensors = read_tensors(path)
    fit_exemplars(model, tensors)
    expected = model.state_dict()
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        parts = [f"{len(names)} {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
                 for what, names in (("missing", missing), ("unexpected", unexpected)) if names]
        raise ValueError(f"{path}: not a checkpoint of this recipe's model: {' and '.join(parts)}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{path}: {name} has shape {list(tensor.shape)}; "
                             f"this recipe's model expects {list(expected[name].shape)}")
    with torch.no_grad():
        for name, tensor in tensors.items():
            expected[name].copy_(tensor)
