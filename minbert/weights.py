"""Weights on disk <-> a BertModel. A name is all that matters: each file's names are turned into ours, then looked up.

Read: safetensors; PyTorch pickles (.bin, .pt, .pkl), always with weights_only=True, so that no code of theirs runs;
names of the TensorFlow era (LayerNorm.gamma / beta); prefixes `bert.` and `module.` (so also the state dicts of
pytorch_pretrained_bert that Arase & Tsujii (2019) released). Nothing is skipped in silence: see LoadReport.
"""
import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from corpora.files import write_atomically, write_json, write_text
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer

Model = TypeVar("Model", bound=BertModel)
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # looked for in this order
# A table of 0, 1, 2, ... that older Hugging Face checkpoints carry; we count positions ourselves.
_IGNORED = ("embeddings.position_ids",)


@dataclass
class LoadReport:
    missing: list[str] = field(default_factory=list)  # parameters of the model that the file does not have
    unexpected: list[str] = field(default_factory=list)  # tensors of the file that the model does not have

    def __str__(self) -> str:
        parts = []
        if self.missing:
            parts.append(f"left as initialised, not in the file: {', '.join(self.missing)}")
        if self.unexpected:
            parts.append(f"in the file but not used: {', '.join(self.unexpected)}")
        return "; ".join(parts) or "every parameter found"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a weight file by name. Raises ValueError for a file that is missing, cut short or no such file."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file; expected a weight file (.safetensors, .bin, .pt or .pkl)")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path}: not a plain pickle of tensors, or damaged ({_first_line(error)}); "
                         "nothing but tensors is ever unpickled") from None
    except (safetensors.SafetensorError, RuntimeError, EOFError, OSError, KeyError, ValueError,
            AttributeError) as error:
        raise ValueError(f"{path}: not a readable weight file, or cut short ({_first_line(error)})") from None
    if isinstance(tensors, dict) and isinstance(tensors.get("state_dict"), dict):
        tensors = tensors["state_dict"]
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError(f"{path}: found a pickled {type(tensors).__name__}; expected a dict of tensors by name")
    return tensors


def our_name(name: str) -> str:
    """A file's name of a tensor -> ours: without wrappers' prefixes, LayerNorm's gamma and beta as weight and bias."""
    name = re.sub(r"^(module\.|_orig_mod\.)*(bert\.|encoder\.(?=embeddings\.|encoder\.|pooler\.))?", "", name)
    return re.sub(r"LayerNorm\.(gamma|beta)$",
                  lambda match: "LayerNorm." + {"gamma": "weight", "beta": "bias"}[match.group(1)], name)


def load_weights(model: BertModel, path: Path) -> LoadReport:
    """Copies a weight file into the model and says which names did not match.

    Raises ValueError for a shape that differs, or a file that holds not one parameter of an encoder.
    """
    tensors = {}
    for name, tensor in read_tensors(path).items():
        renamed = our_name(name)
        if renamed in _IGNORED:
            continue
        if renamed in tensors:
            raise ValueError(f"{path}: two tensors are both named {renamed} once prefixes are dropped")
        tensors[renamed] = tensor
    parameters = model.state_dict()
    report = LoadReport(sorted(parameters.keys() - tensors.keys()), sorted(tensors.keys() - parameters.keys()))
    if len(report.missing) == len(parameters):
        some = ", ".join(report.unexpected[:3]) or "nothing"
        raise ValueError(f"{path}: holds no parameter of a BERT encoder (found {some})")
    for name in parameters.keys() & tensors.keys():
        if tensors[name].shape != parameters[name].shape:
            raise ValueError(f"{path}: {name} has shape {list(tensors[name].shape)}; "
                             f"this model expects {list(parameters[name].shape)}")
        parameters[name].copy_(tensors[name])
    return report


def load_encoder(directory: Path, kind: type[Model] = BertModel  # type: ignore[assignment]
                 ) -> tuple[Model, BertTokenizer, LoadReport]:
    """Load a model directory: config.json, weights, vocabulary.

    Args:
        directory: the model directory.
        kind: BertModel, or a subclass such as engine.bert.FastBertModel.

    Returns:
        The encoder, its tokenizer, and what did not match.
    """
    directory = Path(directory)
    model = kind(BertConfig.load(directory / "config.json"))
    tokenizer = BertTokenizer.load(directory)
    if len(tokenizer.vocabulary) > model.config.vocab_size:
        raise ValueError(f"{directory}: the vocabulary has {len(tokenizer.vocabulary)} tokens, "
                         f"the model {model.config.vocab_size}")
    for name in WEIGHT_FILES:
        if (directory / name).exists():
            return model, tokenizer, load_weights(model, directory / name)
    raise ValueError(f"{directory}: has no weights; expected {' or '.join(WEIGHT_FILES)}")


def export(model: BertModel, tokenizer: BertTokenizer, directory: Path, pooling: str = "mean",
           normalize: bool = True):
    """Writes a directory that transformers (BertModel) and sentence-transformers (SentenceTransformer) load.

    pooling: the sentence vector sentence-transformers shall make, cls, mean or max. normalize: to unit length.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    config = BertConfig(**{**vars(model.config), "other": {"architectures": ["BertModel"], **model.config.other}})
    write_text(directory / "config.json", config.to_json())
    tokenizer.save(directory)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if normalize else [])
    descriptions = {
        "modules.json": [{"idx": index, "name": str(index), "path": path,
                          "type": f"sentence_transformers.models.{kind}"}
                         for index, (path, kind) in enumerate(modules)],
        "sentence_bert_config.json": {"max_seq_length": model.config.max_position_embeddings, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": model.config.hidden_size,
                                  "pooling_mode_cls_token": pooling == "cls",
                                  "pooling_mode_mean_tokens": pooling == "mean",
                                  "pooling_mode_max_tokens": pooling == "max",
                                  "pooling_mode_mean_sqrt_len_tokens": False},
    }
    for name, content in descriptions.items():
        write_json(directory / name, content, indent=2)
    if normalize:
        (directory / "2_Normalize").mkdir(exist_ok=True)
    # The weights last: a directory that has them is whole.
    write_atomically(directory / "model.safetensors",
                     lambda path: safetensors.torch.save_file(tensors, path, metadata={"format": "pt"}))
