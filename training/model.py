"""A recipe's model: one encoder, and the tasks on it. Built anew, or read from a finished run."""
from pathlib import Path

import torch
from torch import nn

from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from minbert.weights import make_encoder
from tasks.heads import Trunk
from tasks.pair import PairTask
from tasks.registry import make_task
from tasks.task import Task
from training import checkpoint
from training.recipe import Recipe
from training.seeds import seed_of
from training.threshold import make_room


class MultitaskModel(nn.Module):
    """Hold one encoder, and the tasks with their heads. Parameters are called `encoder.*` and `tasks.<name>.*`.

    Raises:
        ValueError: a task has the name of an attribute of torch.nn.ModuleDict.
    """

    def __init__(self, encoder: BertModel, tasks: dict[str, Task]):
        super().__init__()
        self.encoder = encoder
        for name in tasks:
            if hasattr(nn.ModuleDict(), name):
                raise ValueError(f"a task is called '{name}', a name that torch uses; expected another, such as "
                                 f"'{name}_1'")
        self.tasks = nn.ModuleDict(tasks)

    def tasks_by_name(self) -> dict[str, Task]:
        """Return the tasks."""
        return dict(self.tasks.items())  # type: ignore[arg-type]


def build_model(recipe: Recipe, config: BertConfig, encoder: BertModel, tokenizer: BertTokenizer) -> MultitaskModel:
    """Put the recipe's tasks on an encoder. Heads are drawn from the recipe's seed.

    Args:
        recipe: names the tasks and their options.
        config, encoder, tokenizer: of one model.
    """
    torch.manual_seed(seed_of(recipe.seed, "heads"))
    tasks = {}
    for name, settings in recipe.tasks.items():
        options = settings.options.filled(recipe.max_length, recipe.hidden_dropout_prob)
        tasks[name] = make_task(settings.kind, name, tokenizer, config, options)
        tasks[name].cmu_predictions = settings.format == "cmu"
        tasks[name].take_layers(encoder)
        if settings.held_out:
            make_room(tasks[name])
    for members in recipe.trunks().values():
        sharing = [task for name, task in tasks.items() if name in members and isinstance(task, PairTask)]
        trunk = Trunk(sharing[0].features, config.hidden_size, sharing[0].dropout.p)
        for task in sharing:
            task.share(trunk)
    for name, settings in recipe.tasks.items():
        if settings.model_of:
            tasks[name]._modules = tasks[settings.model_of]._modules  # one head, for both
    return MultitaskModel(encoder, tasks)


def load_run(recipe: Recipe, folder: Path, weights: Path, kind: type[BertModel]) -> MultitaskModel:
    """Build a recipe's model with the weights of a run.

    Args:
        recipe: of the run.
        folder: of the run. Its encoder/ gives shape and vocabulary.
        weights: the run's model.safetensors.
        kind: of encoder: minbert's, or its faster twin.
    """
    config = BertConfig.load(folder / "encoder" / "config.json")
    model = build_model(recipe, config, make_encoder(config, kind), BertTokenizer.load(folder / "encoder"))
    checkpoint.load_model(weights, model)
    return model
