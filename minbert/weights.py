"""Weights on disk <-> a BertModel. A name is all that matters: each file's names are turned into ours, then looked up.

Read: safetensors; PyTorch pickles (.bin, .pt, .pkl), always with weights_only=True, so that no code of theirs runs;
names of the TensorFlow era (LayerNorm.gamma / beta); prefixes `bert.` and `module.` (so also the state dicts of
pytorch_pretrained_bert that Arase & Tsujii (2019) released). Nothing is skipped in silence: see LoadReport.
"""
import dataclasses
import json
import pickle
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from corpora.files import write_atomically, write_json, write_text
from corpora.messages import first_line
from corpora.near import near
from minbert.bert import BertModel
from minbert.config import BertConfig, SentenceSettings
from minbert.mpnet import become_mpnet, from_mpnet, to_mpnet
from minbert.tokenizer import BertTokenizer, read_json

Model = TypeVar("Model", bound=BertModel)
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # looked for in this order
# A table of 0, 1, 2, ... that older Hugging Face checkpoints carry; we count positions ourselves.
_IGNORED = ("embeddings.position_ids",)


@dataclass
class LoadReport:
    """Say what did not match between a model and a weight file.

    >>> print(LoadReport(unexpected=["cls.predictions.bias"]))
    in the file but not used: cls.predictions.bias
    """

    missing: list[str] = field(default_factory=list)  # parameters of the model that the file does not have
    unexpected: list[str] = field(default_factory=list)  # tensors of the file that the model does not have
    unreachable: int = 0  # rows of the word embeddings that no token of the vocabulary reaches

    def __str__(self) -> str:
        parts = []
        if self.missing:
            parts.append(f"left as initialised, not in the file: {', '.join(self.missing)}")
        if self.unexpected:
            parts.append(f"in the file but not used: {', '.join(self.unexpected)}")
        if self.unreachable:
            parts.append(f"{self.unreachable:,} rows of the word embeddings belong to no token of the vocabulary")
        return "; ".join(parts) or "every parameter found"


def _seems(path: Path) -> str:
    """Say what a file that is no weight file seems to be, and its size."""
    with open(path, "rb") as file:
        start = file.read(200).lstrip()
    size = f"{path.stat().st_size:,} bytes"
    if not start:
        return f"is empty ({size})"
    if start.startswith(b"version https://git-lfs"):
        return f"is a Git LFS pointer ({size}), not the weights; fetch them with `git lfs pull`"
    if start[:1] == b"<":
        return f"is an HTML or XML page ({size}), not the weights"
    return f"is not a readable weight file, or cut short ({size})"


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a weight file by name.

    Raise ValueError for a file that is missing, damaged or something else.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file; expected a weight file (.safetensors, .bin, .pt or .pkl)")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle protocol: not the reader's business
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle makes the unpickler raise any of a dozen kinds, IndexError among them
        what = _seems(path)
        if isinstance(error, pickle.UnpicklingError) and "readable" in what:
            what = "not a plain pickle of tensors, or damaged; only tensors are ever unpickled"
        raise ValueError(f"{path}: {what}") from None
    if isinstance(tensors, dict) and isinstance(tensors.get("state_dict"), dict):
        tensors = tensors["state_dict"]
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError(f"{path}: found a pickled {type(tensors).__name__}; expected a dict of tensors by name")
    return tensors


def our_name(name: str) -> str:
    """Turn a file's name of a tensor into ours.

    Prefixes of wrappers go, and LayerNorm's gamma and beta become weight and bias.

    >>> our_name("module.bert.embeddings.LayerNorm.gamma")
    'embeddings.LayerNorm.weight'
    """
    name = re.sub(r"^(module\.|_orig_mod\.)*(bert\.|mpnet\.|encoder\.(?=embeddings\.|encoder\.|pooler\.))?", "", name)
    return re.sub(r"LayerNorm\.(gamma|beta)$",
                  lambda match: "LayerNorm." + {"gamma": "weight", "beta": "bias"}[match.group(1)], name)


def load_weights(model: BertModel, path: Path) -> LoadReport:
    """Copy a weight file into the model. Returns which names did not match: only the pooler may be missing.

    Raises:
        ValueError: a layer or an embedding is missing, a shape differs, or the file holds no encoder.
    """
    tensors = {}
    for name, tensor in read_tensors(path).items():
        renamed = our_name(name)
        if renamed in _IGNORED:
            continue
        if renamed in tensors:
            raise ValueError(f"{path}: two tensors are both named {renamed} once prefixes are dropped")
        tensors[renamed] = tensor
    if model.config.model_type == "mpnet":
        tensors = from_mpnet(tensors)
    parameters = model.state_dict()
    report = LoadReport(sorted(parameters.keys() - tensors.keys()), sorted(tensors.keys() - parameters.keys()))
    if len(report.missing) == len(parameters):
        some = ", ".join(report.unexpected[:3]) or "nothing"
        raise ValueError(f"{path}: holds no parameter of a BERT encoder (found {some})")
    needed = [name for name in report.missing if not name.startswith("pooler.")]
    if needed:
        spare = [name for name in report.unexpected if near(name, needed)]
        raise ValueError(f"{path}: lacks {', '.join(needed[:3])}{', ...' if len(needed) > 3 else ''} "
                         f"({len(needed)} of {len(parameters)} parameters); only the pooler may be missing"
                         + (f"; it has {spare[0]}" if spare else ""))
    for name in parameters.keys() & tensors.keys():
        if tensors[name].shape != parameters[name].shape:
            raise ValueError(f"{path}: {name} has shape {list(tensors[name].shape)}; "
                             f"this model expects {list(parameters[name].shape)}")
        parameters[name].copy_(tensors[name])
    return report


def make_encoder(config: BertConfig, kind: type[Model] = BertModel  # type: ignore[assignment]
                 ) -> Model:
    """Make an encoder with new parameters: a BERT, or an MPNet if its config says so.

    Args:
        config: its shape.
        kind: BertModel, or a subclass such as engine.bert.FastBertModel.
    """
    model = kind(config)
    if config.model_type == "mpnet":
        become_mpnet(model)
    return model


def load_encoder(directory: Path, kind: type[Model] = BertModel  # type: ignore[assignment]
                 ) -> tuple[Model, BertTokenizer, LoadReport]:
    """Load a model directory: config.json, weights, vocabulary.

    Args:
        directory: the model directory.
        kind: BertModel, or a subclass such as engine.bert.FastBertModel.

    Returns:
        The encoder in evaluation mode, its tokenizer, and what did not match.
    """
    directory = Path(directory)
    model = make_encoder(BertConfig.load(directory / "config.json"), kind)
    tokenizer = BertTokenizer.load(directory)
    if len(tokenizer.vocabulary) > model.config.vocab_size:
        raise ValueError(f"{directory}: the vocabulary has {len(tokenizer.vocabulary)} tokens, "
                         f"the model {model.config.vocab_size}")
    for name in WEIGHT_FILES:
        if (directory / name).exists():
            report = load_weights(model, directory / name)
            report.unreachable = model.config.vocab_size - len(tokenizer.id_of)
            model.config.sentences = read_sentence_settings(directory, model)
            return model.eval(), tokenizer, report
    raise ValueError(f"{directory}: has no weights; expected {' or '.join(WEIGHT_FILES)}")


# ---- sentence vectors as sentence-transformers describes them --------------------------------------------------------


def read_sentence_settings(directory: Path, model: BertModel) -> SentenceSettings:
    """Read how a sentence-transformers folder makes sentence vectors: pooling, normalisation, maximum length.

    A folder that declares nothing gives the defaults. What this library does not do is named in `refused`, and only a
    caller that wants sentence vectors gets the error.
    """
    modules_file = directory / "modules.json"
    if not modules_file.exists():
        return SentenceSettings()
    try:
        modules = json.loads(modules_file.read_text(encoding="utf-8-sig"))
        kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
        folders = [directory / str(module["path"]) for module in modules]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{modules_file}: cannot be read as a list of modules ({first_line(error)})") from None
    normalize = kinds[-1:] == ["Normalize"]
    middle = kinds[1:-1] if normalize else kinds[1:]
    if kinds[:1] != ["Transformer"] or middle not in (["Pooling"], ["Pooling", "Dense"]):
        return SentenceSettings(refused=f"{modules_file}: modules are {', '.join(kinds)}; this library makes sentence "
                                        "vectors by Transformer, Pooling and Normalize")
    declared = read_json(folders[1] / "config.json")
    names = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    poolings = [names.get(name, name) for name, value in declared.items() if name.startswith("pooling_mode_") and value]
    poolings = poolings or [str(declared.get("pooling_mode", "mean"))]
    if len(poolings) != 1 or poolings[0] not in names.values() or declared.get("include_prompt") is False:
        return SentenceSettings(refused=f"{folders[1] / 'config.json'}: pooling is {', '.join(poolings)}; this library "
                                        "has cls, mean and max")
    pooling = poolings[0]
    if "Dense" in middle:
        dense = read_tensors(folders[2] / "model.safetensors")
        own = model.pooler.dense
        if pooling != "cls" or not (torch.equal(dense.get("linear.weight", torch.zeros(0)), own.weight)
                                    and torch.equal(dense.get("linear.bias", torch.zeros(0)), own.bias)):
            return SentenceSettings(refused=f"{modules_file}: has a Dense module that is not the encoder's own pooler")
        pooling = "pooler"
    length = model.config.max_position_embeddings
    if (directory / "sentence_bert_config.json").exists():
        declared_length = read_json(directory / "sentence_bert_config.json").get("max_seq_length")
        if declared_length is not None and (type(declared_length) is not int or declared_length < 3):
            raise ValueError(f"{directory / 'sentence_bert_config.json'}: max_seq_length is {declared_length!r}; "
                             "expected a whole number from 3")
        length = min(length, declared_length or length)
    return SentenceSettings(pooling, normalize, length)


def export(model: BertModel, tokenizer: BertTokenizer, directory: Path, sentences: SentenceSettings | None = None):
    """Write a directory that transformers (BertModel or MPNetModel) and sentence-transformers load.

    Args:
        model, tokenizer: of one encoder.
        directory: of the files.
        sentences: how sentence vectors are made; by default as the model's config says. If this library could not make
            them either (`refused`), the files of sentence-transformers are left out.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    sentences = sentences or model.config.sentences
    tensors = model.state_dict()
    mpnet = model.config.model_type == "mpnet"
    config = dataclasses.replace(model.config, other={
        "architectures": ["MPNetModel" if mpnet else "BertModel"], **model.config.other})
    length = min(sentences.max_length, model.config.max_position_embeddings)
    write_text(directory / "config.json", config.to_json())
    tokenizer.save(directory, length)
    if not sentences.refused:
        pooling = "cls" if sentences.pooling == "pooler" else sentences.pooling
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules += [("2_Dense", "Dense")] if sentences.pooling == "pooler" else []
        modules += [(f"{len(modules)}_Normalize", "Normalize")] if sentences.normalize else []
        write_json(directory / "modules.json", [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)], indent=2)
        write_json(directory / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False}, 2)
        write_json(directory / "1_Pooling" / "config.json", {
            "word_embedding_dimension": model.config.hidden_size, "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_max_tokens": pooling == "max",
            "pooling_mode_mean_sqrt_len_tokens": False}, indent=2)
        for path, kind in modules:
            if kind == "Normalize":
                (directory / path).mkdir(exist_ok=True)
            if kind == "Dense":
                size = model.config.hidden_size
                write_json(directory / path / "config.json", {
                    "in_features": size, "out_features": size, "bias": True,
                    "activation_function": "torch.nn.modules.activation.Tanh"}, indent=2)
                save_tensors(directory / path / "model.safetensors", {
                    "linear.weight": tensors["pooler.dense.weight"],
                    "linear.bias": tensors["pooler.dense.bias"]})
    # The weights last: a directory that has them is whole.
    save_tensors(directory / "model.safetensors", to_mpnet(tensors) if mpnet else tensors)


def save_tensors(path: Path, tensors: dict[str, Tensor]):
    """Write tensors atomically. Two names of one tensor become two copies in the file.

    Raise OSError that names the file where that fails, say because the disk is full.
    """
    plain: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        one = tensor.detach().cpu().contiguous()
        plain[name] = one.clone() if one.data_ptr() in seen else one
        seen.add(one.data_ptr())
    try:
        write_atomically(path, lambda temporary: safetensors.torch.save_file(plain, temporary, {"format": "pt"}))
    except safetensors.SafetensorError as error:
        raise OSError(f"{path}: {first_line(error)}") from None
