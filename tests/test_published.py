"""Every recipe of a published experiment has the published settings. The tables here are written from the reports."""
from dataclasses import dataclass, field

import pytest
from conftest import ROOT

from training.recipe import load_recipe

SINGLE_LOGIT = ("linear", "bce")
COSINE = ("cosine", "mse")


@dataclass
class Said:
    """What a report says of one experiment. None: it does not say."""

    batch: int | None
    lr: float
    dropout: float
    stages: list  # (tasks in order, epochs or None, mixing, trainable)
    heads: dict  # task -> (head, loss, combination or None)
    weight_decay: float | None = None
    pooling: str | None = None
    overall: str = "course"
    options: dict = field(default_factory=dict)  # (task, option) -> value
    combine: str = "sum"
    dev: tuple = ()  # sst, para, sts, overall
    train: tuple = ()
    test: tuple = ()


THREE = (["sst", "para", "sts"], None, "in_turn", "all")
PAIRS = (["para", "sts"], None, "in_turn", "all")
FROZEN = (["sst"], None, "in_turn", "heads")
PLAIN = {"sst": ("linear", None, None), "para": (*SINGLE_LOGIT, "u,v"), "sts": ("linear", "mse", "u,v")}
MOD = {"sst": ("linear", None, None), "para": (*SINGLE_LOGIT, "u,v,|u-v|"), "sts": (*COSINE, None)}
UNIT = {("sts", "target_range"): [0.0, 1.0]}  # score / 5


def lee(stages, heads, dev, **more):
    return Said(32, 2e-5, 0.1, stages, heads, dev=dev, **more)


LEE = {
    "baseline": lee([THREE], PLAIN, (.479, .634, .347, .596)),
    "shared": lee([THREE], PLAIN, (.513, .772, .328, .650),
                  options={("para", "trunk"): "pairs", ("sts", "trunk"): "pairs"}),
    "sts_para_head_mod": lee([THREE], MOD, (.480, .752, .721, .697), options=UNIT),
    "sts_para_head_mod_1": lee([THREE], {**MOD, "para": (*SINGLE_LOGIT, "u,v,cos")}, (.482, .748, .726, .698),
                               options=UNIT),
    "freeze_sst": lee([PAIRS, FROZEN], MOD, (.420, .775, .758, .691), options={**UNIT, ("sst", "new_layers"): 4}),
    "sst_to_sts": lee([PAIRS, FROZEN], {**MOD, "sst": ("exemplars", None, None)}, (.358, .775, .758, .671),
                      options={**UNIT, ("sst", "exemplars"): 100}),
    "sst_to_sts_nearest": lee([PAIRS, FROZEN], {**MOD, "sst": ("nearest", None, None)}, ()),
    "nli_regression": lee([(["snli", "multinli"], 1, "in_turn", "all"), THREE],
                          {**MOD, "snli": (*COSINE, None), "multinli": (*COSINE, None)}, (.501, .823, .850, .750),
                          options={**UNIT, ("snli", "target_range"): [0.0, 1.0]}),
    "nli_contrastive": lee([(["snli_triplets", "multinli_triplets"], 1, "in_turn", "all"), THREE], MOD,
                           (.490, .790, .802, .727), options={**UNIT, ("snli_triplets", "objective"): "contrastive",
                                                              ("multinli_triplets", "objective"): "contrastive",
                                                              ("snli_triplets", "temperature"): 1.0}),
    "nli_triplet": lee([(["snli_triplets", "multinli_triplets"], 1, "in_turn", "all"), THREE], MOD,
                       (.532, .881, .880, .784), test=(.525, .876, .862, .777),
                       options={**UNIT, ("snli_triplets", "objective"): "triplet", ("snli_triplets", "margin"): 1.0,
                                ("multinli_triplets", "objective"): "triplet"}),
}


def yi(tasks, heads, epochs=5, dropout=0.5, **more):
    return Said(8, 1e-5, dropout, [(tasks, epochs, "in_turn", "all")], heads, pooling="mean", overall="mean", **more)


PRODUCT = {"sst": ("linear", None, None), "para": (*SINGLE_LOGIT, "u*v"), "sts": ("linear", "bce", "u*v")}
YI = {
    "baseline": yi(["sst", "para", "sts"], PRODUCT, 3, 0.3, train=(.627, .461, .124, .404),
                   dev=(.52, .378, .089, .329), options={("para", "dropout_on"): "vectors",
                                                         ("sts", "dropout_on"): "vectors"}),
    "baseline_cfimdb": yi(["cfimdb"], {"cfimdb": ("linear", None, None)}, 3, 0.3),
    "para_product": yi(["para"], {"para": ("linear", "cross_entropy", "u*v")}, train=(None, .52), dev=(None, .43)),
    "para_u_v_product": yi(["para"], {"para": ("linear", "cross_entropy", "u,v,u*v")}, train=(None, .66),
                           dev=(None, .58)),
    "para_u_v_difference": yi(["para"], {"para": ("linear", "cross_entropy", "u,v,|u-v|")}, train=(None, .71),
                              dev=(None, .63)),
    "sts_mse": yi(["sts"], {"sts": (*COSINE, None)}, train=(None, None, .78), dev=(None, None, .62)),
    "sts_l1": yi(["sts"], {"sts": ("cosine", "l1", None)}, train=(None, None, .66), dev=(None, None, .57)),
    "sts_cross_entropy": yi(["sts"], {"sts": ("cosine", "bce", None)}, train=(None, None, .30),
                            dev=(None, None, .24)),
    "sts_hinge": yi(["sts"], {"sts": ("cosine", "hinge", None)}),
    "all_together": yi(["sst", "para", "sts"], {"sst": ("linear", None, None), "sts": (*COSINE, None),
                                                "para": ("linear", "cross_entropy", "u,v,|u-v|")},
                       train=(.866, .629, .860, .785), dev=(.525, .591, .443, .520)),
}


def ma(heads, dev, train, test, first=False, combine="sum"):
    stages = [(["sts"], 1, "cycle", "all")] * first + [(["sst", "para", "sts"], 1, "cycle", "all")]
    return Said(None, 1e-5, 0.3, stages, heads, 1e-4, overall="mean", combine=combine, dev=dev, train=train, test=test)


COSINE_HEAD = {**PLAIN, "sts": (*COSINE, None)}
MA = {
    "baseline": ma(PLAIN, (.201, .682, .244, .375), (.993, .743, .904), (.504, .771, .344, .540)),
    "cosine": ma(COSINE_HEAD, (.209, .736, .384, .443), (.991, .689, .833), (.515, .686, .363, .522)),
    "pcgrad": ma(PLAIN, (.209, .738, .299, .415), (.989, .742, .882), (.531, .734, .329, .531), combine="pcgrad"),
    "sequential": ma(PLAIN, (.220, .701, .264, .395), (.994, .710, .782), (.512, .703, .296, .503), first=True),
    "all_extensions": ma(COSINE_HEAD, (.227, .731, .351, .436), (.994, .739, .897), (.528, .730, .394, .550),
                         first=True, combine="pcgrad"),
}
REPORTS = {"lee": LEE, "yi": YI, "ma": MA}
TITLES = {"lee": "Kyuil Lee, BERTology: Improving Sentence Embeddings for Multi-Task Success",
          "yi": "Zihan Yi, Use Siamese BERT-Networks to fine-tune minBERT with downstream tasks",
          "ma": "Ma, Peng, Zhang, Fine-tuning BERT for Sentiment Analysis, Paraphrase Detection and Semantic Textual "
                "Similarity"}


@pytest.mark.parametrize("report", REPORTS)
def test_every_experiment_has_a_recipe_and_every_recipe_an_experiment(report):
    assert {path.stem for path in (ROOT / "recipes" / report).glob("*.toml")} == set(REPORTS[report])


@pytest.mark.parametrize(("report", "name"), [(report, name) for report in REPORTS for name in REPORTS[report]])
def test_a_recipe_has_the_published_settings(report, name):
    said, recipe = REPORTS[report][name], load_recipe(ROOT / "recipes" / report / f"{name}.toml")
    assert recipe.source.startswith(TITLES[report])
    assert (recipe.hidden_dropout_prob, recipe.overall, recipe.weights) == (said.dropout, said.overall,
                                                                           "bert-base-uncased")
    assert len(recipe.stage) == len(said.stages)
    for stage, (tasks, epochs, mixing, trainable) in zip(recipe.stage, said.stages, strict=True):
        assert (stage.tasks, stage.mixing, stage.trainable) == (tasks, mixing, trainable)
        assert epochs is None or stage.epochs == epochs
        assert said.batch is None or stage.batch_size == said.batch
        assert stage.optimizer.lr == said.lr and stage.optimizer.head_lr is None
        assert said.weight_decay is None or stage.optimizer.weight_decay == said.weight_decay
        assert (stage.schedule, stage.warmup, stage.clip) == ("constant", 0.0, 0.0)  # the course's loop has none
    assert recipe.stage[-1].combine == said.combine
    for task, (head, loss, combination) in said.heads.items():
        options = recipe.tasks[task].options
        assert options.head == head and options.dropout is None
        assert loss is None or options.loss == loss
        assert combination is None or options.combination == combination
    for (task, option), value in said.options.items():
        assert getattr(recipe.tasks[task].options, option) == value
    if said.pooling:
        assert {task.options.pooling for task in recipe.tasks.values()} == {said.pooling}
    expected = {}
    for split, figures in (("dev", said.dev), ("train", said.train), ("test", said.test)):
        named = {key: value for key, value in zip(("sst", "para", "sts", "overall"), figures, strict=False)
                 if value is not None}
        expected |= {split: named} if named else {}
    assert recipe.published == expected


def test_yi_draws_a_quarter_of_quora_by_balanced_labels():
    for name in ("para_product", "para_u_v_product", "para_u_v_difference", "all_together"):
        (stage,) = load_recipe(ROOT / "recipes" / "yi" / f"{name}.toml").stage
        assert stage.share == {"para": 0.25} and stage.balanced == ["para"]
    (stage,) = load_recipe(ROOT / "recipes" / "yi" / "baseline.toml").stage
    assert not stage.share and not stage.balanced


# Transfer fine-tuning: ablation, features, pooling, and what else differs.
TFT = {"full": ("full", "full", "max"), "simple": ("full", "simple", "mean"),
       "sentence_only": ("sentence_only", "full", "max"), "three_way": ("three_way", "full", "max"),
       "binary": ("binary", "full", "max"), "simple_three_way": ("three_way", "simple", "mean"),
       "attentive": ("full", "full", "attentive"), "attentive_one": ("full", "full", "attentive")}


@pytest.mark.parametrize("name", TFT)
def test_transfer_fine_tuning_has_the_papers_settings(name):
    recipe = load_recipe(ROOT / "recipes" / "tft" / f"{name}.toml")
    options = recipe.tasks["tft"].options
    assert (options.ablation, options.features, options.pooling) == TFT[name]
    assert (options.dropout, options.random_sources) == (0.2, "all")
    assert options.looks == (1 if name == "attentive_one" else 4)
    (stage,) = recipe.stage
    assert (stage.batch_size, stage.optimizer.lr, stage.optimizer.head_lr, stage.optimizer.weight_decay,
            stage.stop_after_decreases, stage.schedule) == (100, 5e-5, None, 0.0, 2, "constant")


def test_the_papers_figures_stand_beside_the_papers_settings_only():
    full = load_recipe(ROOT / "recipes/tft/full.toml").published
    assert full == {"test": {
        "phrasal": .981, "sentential": .999, "mrpc": .892, "stsb": .874, "qqp": .712, "mnli": .839, "mnli_mm": .831,
        "rte": .648, "qnli": .893, "sst2": .931, "cola": .472}}
    assert load_recipe(ROOT / "recipes/tft/simple.toml").published == {"test": {
        "mrpc": .886, "stsb": .877, "qqp": .715, "mnli": .847, "mnli_mm": .836, "rte": .670, "qnli": .911}}
    for name in ("tft/small", "tft/generated", "best", "default"):
        assert load_recipe(ROOT / f"recipes/{name}.toml").published == {}


GLUE = {"mrpc": .883, "stsb": .847, "qqp": .712, "mnli": .843, "mnli_mm": .830, "rte": .598, "qnli": .891,
        "sst2": .933, "cola": .527}


@pytest.mark.parametrize("path", sorted((ROOT / "recipes/glue").glob("*.toml")), ids=lambda path: path.stem)
def test_glue_is_fine_tuned_as_the_paper_did(path):
    recipe = load_recipe(path)
    (stage,) = recipe.stage
    assert (stage.batch_size, stage.optimizer.lr, stage.epochs, stage.keep) == (32, 3e-5, 4, "last")
    options = recipe.tasks[path.stem].options
    assert options.filled(recipe.max_length, recipe.hidden_dropout_prob).dropout == 0.1
    assert recipe.published == ({"test": {path.stem: GLUE[path.stem]}} if path.stem in GLUE else {})
