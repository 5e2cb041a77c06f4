"""Tasks: files to examples to batches to losses to predictions, for every choice a recipe can make."""
import itertools
import json
import math

import numpy as np
import pytest
import reference
import torch
from conftest import TINY, cases, make_task
from torch.testing import assert_close

import corpora.examples
from corpora import toy
from corpora.disklist import DiskList
from corpora.examples import Example, joined
from minbert.bert import BertModel
from tasks import losses
from tasks.inference import build_triplets, read_pairs
from tasks.leaderboard import overall_score, read_predictions
from tasks.options import CLASS_LOSSES, PARTS, POOLINGS, SCORE_LOSSES
from tasks.registry import TASKS
from tasks.task import Outputs
from training.model import build_model
from training.recipe import parse_recipe

FILES = {"sentiment": "ids-sst", "paraphrase": "quora", "similarity": "sts"}


@pytest.fixture(scope="module")
def encoder():
    """Weights large enough that no wrong formula hides behind small numbers."""
    torch.manual_seed(0)
    model = BertModel(TINY).double().eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3)
        if name.endswith("LayerNorm.weight"):
            parameter.data += 1
    return model


def batch_of(task, directory, count=8):
    suffix = ".jsonl" if task.name.startswith("inference") else ".csv"
    stem = FILES.get(task.name, "nli")
    examples = task.read(directory / f"{stem}-train{suffix}", "train").examples[:count]
    task.tokenize(examples)
    return task.collate(examples), examples


def sentence_vectors(task, encoder, ids, kind):
    """Each sentence on its own through the encoder, then pooled by the reference."""
    pooler = encoder.pooler.dense
    vectors = []
    for sentence in ids:
        tokens = torch.tensor([task.tokenizer.build(sentence, max_length=task.max_length)[0]])
        hidden = encoder(tokens).last_hidden_state[0]
        vectors.append(reference.pooled(hidden, torch.ones(len(hidden)), kind, (pooler.weight, pooler.bias)))
    return vectors


def check_pairs(task, encoder, directory, options, pooling="mean"):
    """Outputs, loss and predictions of a siamese task against the reference. Labels of the batch are made to differ."""
    task = task.double().eval()
    batch, examples = batch_of(task, directory)
    classes = task.classes
    labels = [index % classes if classes else index * 0.7 for index in range(len(examples))]
    batch.labels = torch.tensor(labels, dtype=torch.int64 if classes else torch.float64)
    batch.groups = torch.arange(2 * len(examples))  # all texts differ
    loss_kind, head_kind = options["loss"], options["head"]
    full = {"bins": 6, "margin": task.objective.options.margin, "temperature": 0.05, "positive_from": 0.8,
            "label_smoothing": 0.0, "threshold": 0.3, "target_range": [0.0, 1.0],
            "logit": head_kind != "cosine" or classes == 2, **options}
    if getattr(task.objective, "threshold", None) is not None:
        task.objective.threshold.fill_(0.3)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.normal_(std=0.5)
        outputs = task.outputs(encoder, batch)
        loss = task.criterion(outputs, batch).item()
        predictions = task.predict_from(outputs).tolist()
        u, v = (sentence_vectors(task, encoder, [example.ids[side] for example in examples], pooling)
                for side in (0, 1))
    weights = {} if task.head is None else dict(task.head.state_dict())
    expected = []
    for a, b in zip(u, v, strict=True):
        if head_kind == "cosine":
            score = reference.cosine(a, b)
            if loss_kind in ("cross_entropy", "bce") and classes == 2:
                score = weights["scale"].item() * score + weights["offset"].item()
                score = [0.0, score] if loss_kind == "cross_entropy" else score
        else:
            numbers = reference.apply_head(weights, reference.feature_vector(a, b, full["combination"]))
            score = numbers if loss_kind in ("cross_entropy", "bins") else numbers[0]
        expected.append(score)
    read = list(zip(u, v, strict=True)) if loss_kind == "info_nce" else expected
    assert loss == pytest.approx(reference.pair_loss(loss_kind, read, labels, task.highest, classes, full), rel=1e-6)
    assert predictions == pytest.approx([
        reference.pair_prediction(loss_kind, score, task.highest, classes, full, head_kind) for score in expected],
        rel=1e-6)


PAIR_CHOICES = [
    {"head": head, "loss": loss, "combination": combination}
    for head, loss, combination in [
        *[("linear", "cross_entropy", part) for part in PARTS],
        *itertools.product(["linear", "mlp"], ["cross_entropy"], ["u,v,|u-v|", "u,v,u*v", "|u-v|,u*v,cos"]),
        *itertools.product(["cosine", "linear"], CLASS_LOSSES, ["u,v,|u-v|"])]]


@pytest.mark.parametrize("choices", PAIR_CHOICES, ids=lambda c: "-".join(c.values()))
def test_every_siamese_choice_of_paraphrase_equals_its_twin(encoder, tiny_tokenizer, toy_directory, choices):
    task = make_task("paraphrase", "paraphrase", tiny_tokenizer, TINY, choices)
    check_pairs(task, encoder, toy_directory, choices)


@pytest.mark.parametrize("kind", ["paraphrase", "similarity"])
@pytest.mark.parametrize("max_length", [64, 12])
def test_both_encodings_side_by_side(encoder, tiny_tokenizer, toy_directory, kind, max_length):
    """The features of the two vectors, then the vector of the pair in one sequence, through one linear head."""
    combination = "u,|u-v|,cos"
    task = make_task(kind, kind, tiny_tokenizer, TINY, {"encoding": "both", "head": "linear", "max_length": max_length,
                                                        "combination": combination}).double().eval()
    batch, examples = batch_of(task, toy_directory)
    assert task.sequences_per_example == 3 and len(batch.tokens.input_ids) == 3 * len(examples)
    rows = []
    for example in examples:
        u, v = sentence_vectors(task, encoder, example.ids, "mean")
        ids, types = tiny_tokenizer.build(example.ids[0], example.ids[1], max_length)
        hidden = encoder(torch.tensor([ids]), token_type_ids=torch.tensor([types])).last_hidden_state[0]
        cosine = (u @ v / (u.norm() * v.norm())).reshape(1)
        rows.append(torch.cat([u, (u - v).abs(), cosine, hidden.mean(dim=0)]))
        assert task.length(example) == len(ids)
    linear = task.head[1]
    expected = torch.stack(rows) @ linear.weight.T + linear.bias
    found = task.outputs(encoder, batch).values
    assert torch.allclose(found, expected if found.ndim == 2 else expected[:, 0], atol=1e-10)


@pytest.mark.parametrize("head", ["cosine", "linear", "mlp"])
@pytest.mark.parametrize("loss", SCORE_LOSSES)
def test_every_head_and_loss_of_similarity_equals_its_twin(encoder, tiny_tokenizer, toy_directory, head, loss):
    choices = {"head": head, "loss": loss, "combination": "u,v,|u-v|"}
    if head == "cosine" and loss == "bins":
        with pytest.raises(ValueError, match="needs several"):
            make_task("similarity", "similarity", tiny_tokenizer, TINY, choices)
        return
    check_pairs(make_task("similarity", "similarity", tiny_tokenizer, TINY, choices), encoder, toy_directory, choices)


@pytest.mark.parametrize("choices", [
    {"head": "cosine", "loss": "mse", "target_range": [-1.0, 1.0]},
    {"head": "cosine", "loss": "bce", "target_range": [-1.0, 1.0]},
    {"head": "linear", "loss": "mse", "target_range": [0.0, 5.0]},
    {"head": "mlp", "loss": "l1", "target_range": [-3.0, 2.5]},
    {"head": "linear", "loss": "mse", "dropout_on": "vectors"}], ids=str)
def test_every_target_range_equals_its_twin(encoder, tiny_tokenizer, toy_directory, choices):
    choices = {"combination": "u,v,u*v", **choices}
    check_pairs(make_task("similarity", "similarity", tiny_tokenizer, TINY, choices), encoder, toy_directory, choices)


def test_dropout_on_vectors_drops_each_sentence_before_they_are_combined(tiny_tokenizer):
    task = make_task("paraphrase", "paraphrase", tiny_tokenizer, TINY,
                     {"combination": "u*v", "dropout_on": "vectors", "loss": "bce", "dropout": 0.5}).double()
    vectors = torch.randn(2000, 32, dtype=torch.float64)
    torch.manual_seed(3)
    u, v = (torch.nn.functional.dropout(half, 0.5) for half in vectors.chunk(2))
    torch.manual_seed(3)
    assert_close(task.compare(vectors), (u * v) @ task.head.weight[0] + task.head.bias)
    assert 0.2 < ((u * v) != 0).double().mean() < 0.3  # one mask a sentence: a quarter is left


def test_tasks_of_a_trunk_share_two_layers_and_keep_a_last_one_each(tiny_tokenizer):
    recipe = parse_recipe({"stage": [{"tasks": ["para", "sts"]}], "tasks": {
        "para": {"combination": "u,v", "loss": "bce", "trunk": "pairs"},
        "sts": {"combination": "u,v", "head": "linear", "trunk": "pairs"}}}, "r.toml")
    model = build_model(recipe, TINY, BertModel(TINY), tiny_tokenizer).double().eval()
    para, sts = model.tasks["para"], model.tasks["sts"]
    assert para.trunk is sts.trunk and para.head is not sts.head
    vectors = torch.randn(8, 32, dtype=torch.float64)
    hidden = torch.cat(vectors.chunk(2), dim=1)
    for layer in (1, 4):
        linear = para.trunk.layers[layer]
        hidden = (hidden @ linear.weight.T + linear.bias).clamp_min(0)
    for task in (para, sts):
        assert_close(task.compare(vectors), hidden @ task.head[1].weight[0] + task.head[1].bias)
    names = [name for name, _ in model.named_parameters() if "trunk" in name]
    assert len(names) == 4  # one set of parameters
    with pytest.raises(ValueError, match="trunk 'pairs' .para, sts. have the combinations u,v and u,v,cos"):
        parse_recipe({"stage": [{"tasks": ["para", "sts"]}], "tasks": {
            "para": {"combination": "u,v", "trunk": "pairs"},
            "sts": {"combination": "u,v,cos", "head": "linear", "trunk": "pairs"}}}, "r.toml")


@pytest.mark.parametrize("head", ["exemplars", "nearest"])
def test_exemplar_heads_are_cosines_to_training_sentences(encoder, tiny_tokenizer, toy_directory, head):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {"head": head, "exemplars": 3}).double().train()
    examples = task.read(toy_directory / "ids-sst-train.csv", "train").examples
    task.tokenize(examples)
    encoder.train()
    task.prepare(encoder, examples, "seed", torch.device("cpu"))
    assert encoder.training and task.training  # modes are as before
    assert task.head.labels.tolist() == [label for label in range(5) for _ in range(3)]
    encoder.eval(), task.eval()
    chosen = task.head.vectors.clone()
    task.prepare(encoder, examples, "seed", torch.device("cpu"))
    assert torch.equal(chosen, task.head.vectors)  # the same sentences, and no dropout while they were embedded
    batch = task.collate(examples[:7])
    vectors = task.encode(encoder, batch.tokens)[0]
    cosines = [[reference.cosine(vector, exemplar.double()) for exemplar in chosen] for vector in vectors]
    outputs = task.outputs(encoder, batch).values
    if head == "exemplars":
        expected = torch.tensor([[*row, *task.head.labels.tolist()] for row in cosines], dtype=torch.float64)
        assert_close(outputs, expected @ task.head.linear.weight.T + task.head.linear.bias)
    else:
        nearest = [int(task.head.labels[row.index(max(row))]) for row in cosines]
        assert task.predict(encoder, batch).tolist() == nearest
    with pytest.raises(ValueError, match="training sentences of class 0; expected the 3 that the option exemplars"):
        task.prepare(encoder, [example for example in examples if example.label != 0], "seed", torch.device("cpu"))


def test_the_nearest_of_all_training_sentences_is_the_sentence_itself(encoder, tiny_tokenizer, toy_directory):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {"head": "nearest", "exemplars": 0}).double().eval()
    examples = task.read(toy_directory / "ids-sst-train.csv", "train").examples
    task.tokenize(examples)
    task.prepare(encoder, examples, "seed", torch.device("cpu"))
    assert task.head.vectors.shape == (len(examples), TINY.hidden_size)
    labels = {tuple(example.ids[0]): example.label for example in examples}
    predictions = task.predict(encoder, task.collate(examples)).tolist()
    assert predictions == [labels[tuple(example.ids[0])] for example in examples]


@pytest.mark.parametrize("choices", [
    {"loss": "mse", "head": "cosine", "combination": "u,v,|u-v|"},
    {"loss": "l1", "head": "linear", "combination": "u,v"},
    {"loss": "cross_entropy", "head": "linear", "combination": "u,v,|u-v|"},
    {"loss": "cross_entropy", "head": "mlp", "combination": "u,v,|u-v|", "label_smoothing": 0.1}])
def test_inference_equals_its_twin(encoder, tiny_tokenizer, toy_directory, choices):
    task = make_task("inference", "inference", tiny_tokenizer, TINY, choices)
    check_pairs(task, encoder, toy_directory, choices)


@pytest.mark.parametrize("pooling", [pooling for pooling in POOLINGS if pooling != "attentive"])
def test_every_pooling_of_a_pair_equals_its_twin(encoder, tiny_tokenizer, toy_directory, pooling):
    choices = {"loss": "cross_entropy", "head": "linear", "combination": "u,v,|u-v|"}
    task = make_task("paraphrase", "paraphrase", tiny_tokenizer, TINY, {**choices, "pooling": pooling})
    check_pairs(task, encoder, toy_directory, choices, pooling)


@pytest.mark.parametrize("pooling", [pooling for pooling in POOLINGS if pooling != "attentive"])
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_sentiment_equals_its_twin(encoder, tiny_tokenizer, toy_directory, pooling, head):
    task = make_task("sentiment", "sentiment", tiny_tokenizer, TINY,
                     {"pooling": pooling, "head": head, "label_smoothing": 0.1}).double().eval()
    batch, examples = batch_of(task, toy_directory)
    with torch.no_grad():
        outputs = task.outputs(encoder, batch)
        vectors = sentence_vectors(task, encoder, [example.ids[0] for example in examples], pooling)
        expected = [reference.apply_head(dict(task.head.state_dict()), vector) for vector in vectors]
    assert_close(outputs.values, torch.tensor(expected, dtype=torch.float64))
    loss = reference.pair_loss("cross_entropy", expected, [example.label for example in examples], 1, 5,
                               {"label_smoothing": 0.1})
    assert task.criterion(outputs, batch).item() == pytest.approx(loss)
    assert task.predict_from(outputs).tolist() == [logits.index(max(logits)) for logits in expected]


def test_attentive_pooling_adds_its_penalty_once(encoder, tiny_tokenizer, toy_directory):
    """To the loss of the pass it belongs to: R-Drop averages two, SMART keeps the clean one."""
    task = make_task("paraphrase", "paraphrase", tiny_tokenizer, TINY, {"pooling": "attentive"}).double().eval()
    batch, _ = batch_of(task, toy_directory)
    outputs = task.outputs(encoder, batch)
    output = encoder(batch.tokens.input_ids, batch.tokens.attention_mask)
    vectors, penalty = task.attentive(output.last_hidden_state, batch.tokens.attention_mask)
    assert_close(outputs.penalty, 0.03 * penalty) and penalty > 0
    assert_close(outputs.values, task.compare(vectors))
    without = task.criterion(Outputs(outputs.values, torch.zeros(())), batch)
    assert_close(task.criterion(outputs, batch), without + 0.03 * penalty)


def test_cross_encoding_puts_both_sentences_in_one_sequence(encoder, tiny_tokenizer, toy_directory):
    for kind, loss in (("paraphrase", "cross_entropy"), ("similarity", "mse"), ("inference", "cross_entropy")):
        task = make_task(kind, kind, tiny_tokenizer, TINY, {
            "encoding": "cross", "head": "linear", "loss": loss, "pooling": "cls"}).double().eval()
        batch, examples = batch_of(task, toy_directory, 4)
        vectors = []
        for row, example in enumerate(examples):
            first, second = example.ids
            ids = [task.tokenizer.cls_id, *first, task.tokenizer.sep_id, *second, task.tokenizer.sep_id]
            types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            assert batch.tokens.input_ids[row, :len(ids)].tolist() == ids
            assert batch.tokens.token_type_ids[row, :len(ids)].tolist() == types
            vectors.append(encoder(torch.tensor([ids]), None, torch.tensor([types])).last_hidden_state[0, 0])
        expected = torch.tensor([reference.apply_head(dict(task.head.state_dict()), vector) for vector in vectors])
        found = task.outputs(encoder, batch).values
        assert_close(found if found.ndim == 2 else found[:, None], expected.double(), check_dtype=False)


@pytest.mark.parametrize("objective", ["triplet", "contrastive"])
def test_inference_triplets_equal_their_twin(encoder, tiny_tokenizer, tmp_path, objective):
    rows = [(f"p{i}", f"{label[0]}{i}", label) for label in ("entailment", "contradiction") for i in range(6)]
    (tmp_path / "nli-train.jsonl").write_text("".join(
        json.dumps({"sentence1": a, "sentence2": b, "gold_label": c}) + "\n" for a, b, c in rows))
    task = make_task("inference_triplets", "inference_triplets", tiny_tokenizer, TINY,
                     {"objective": objective, "margin": 0.7, "temperature": 0.1}).double().eval()
    batch, examples = batch_of(task, tmp_path, 6)
    assert [example.sentences for example in examples] == [(f"p{i}", f"e{i}", f"c{i}") for i in range(6)]
    with torch.no_grad():
        outputs = task.outputs(encoder, batch)
        sides = [sentence_vectors(task, encoder, [example.ids[side] for example in examples], "mean")
                 for side in range(3)]
    total, expected = 0.0, []
    for i, (premise, entailed, contradicted) in enumerate(zip(*sides, strict=True)):
        expected.append(int(reference.cosine(premise, entailed) > reference.cosine(premise, contradicted)))
        if objective == "triplet":
            total += max(0.0, ((premise - entailed).norm() - (premise - contradicted).norm()).item() + 0.7)
        else:
            logits = [reference.cosine(premise, other) / 0.1 for other in sides[1] + sides[2]]
            total -= reference.log_softmax(logits)[i]
    assert task.criterion(outputs, batch).item() == pytest.approx(total / 6, rel=1e-4)  # torch adds 1e-6 in the norm
    assert task.predict_from(outputs).tolist() == expected


def test_the_threshold_of_a_ranking_loss_follows_the_classes(tiny_tokenizer):
    task = make_task("paraphrase", "para", tiny_tokenizer, TINY, {"head": "cosine", "loss": "cosent"})
    scores, labels = torch.tensor([0.9, 0.7, 0.1, 0.3]), torch.tensor([1, 1, 0, 0])
    for _ in range(500):
        task.objective.observe(scores, labels)
    assert task.objective.threshold.item() == pytest.approx(0.5 * (0.8 + 0.2), abs=1e-4)
    assert task.objective.predict(torch.tensor([0.49, 0.51])).tolist() == [0, 1]
    hinge = make_task("paraphrase", "para", tiny_tokenizer, TINY, {"loss": "hinge"})
    hinge.objective.observe(scores, labels)
    assert hinge.objective.predict(torch.tensor([-0.1, 0.1])).tolist() == [0, 1]
    before = task.objective.threshold.clone()
    task.objective.observe(scores[:2], labels[:2])  # one class only: no midpoint
    assert torch.equal(task.objective.threshold, before)


def test_divergences_compare_what_the_objective_reads(tiny_tokenizer):
    """info_nce: vectors of the same directions are the same; logits: Kullback-Leibler; scores: squares."""
    torch.manual_seed(0)
    first, second = torch.randn(2, 8, 4)

    def divergence(options, a, b):
        task = make_task("paraphrase", "para", tiny_tokenizer, TINY, options)
        return task.divergence(Outputs(a, torch.zeros(())), Outputs(b, torch.zeros(()))).item()

    assert divergence({"loss": "info_nce"}, first, 2 * first) == pytest.approx(0, abs=1e-6)
    unit = [x / x.norm(dim=1, keepdim=True) for x in (first, second)]
    expected = sum((unit[0][i] - unit[1][i]).square().sum().item() for i in range(8)) / 8
    assert divergence({"loss": "info_nce"}, first, second) == pytest.approx(expected, rel=1e-5)
    assert divergence({"loss": "cross_entropy"}, first, second) == pytest.approx(
        losses.symmetric_divergence(first, second).item())
    assert divergence({"loss": "mse"}, first[:, 0], second[:, 0]) == pytest.approx(
        (first - second)[:, 0].square().mean().item())


@pytest.mark.parametrize("head", ["cosine", "linear"])
@pytest.mark.parametrize("loss", [loss for loss in SCORE_LOSSES if loss != "bins"])
def test_predictions_stay_in_the_tasks_range(tiny_tokenizer, head, loss):
    objective = make_task("similarity", "sts", tiny_tokenizer, TINY, {"head": head, "loss": loss}).objective
    found = objective.predict(torch.tensor([-30.0, -0.2, 0.5, 1.0000001, 30.0]))
    assert found.min() >= 0 and found.max() <= 5 and found.tolist() == sorted(found.tolist())
    if head == "cosine" or loss in ("mse", "l1"):
        assert found.tolist() == pytest.approx([0, 0, 2.5, 5, 5])


def test_triplets_are_built_from_pairs_without_losing_a_hypothesis():
    pairs = [Example("", sentences, label) for sentences, label in [
        (("a", "a-e1"), 2), (("b", "b-e1"), 2), (("a", "a-c1"), 0), (("a", "a-n"), 1), (("a", "a-e2"), 2),
        (("c", "c-c1"), 0), (("a", "a-e3"), 2)]]
    triplets, unused = build_triplets(pairs)
    assert [t.sentences for t in triplets] == [
        ("a", "a-e1", "a-c1"), ("a", "a-e2", "a-c1"), ("a", "a-e3", "a-c1")]
    assert sorted(reason for _, reason in unused) == ["neutral", *["of a premise without an opposite"] * 2]


def test_nli_files_in_every_layout(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"sentence1": "p", "sentence2": "h", "gold_label": "neutral"}\n'
                                      '{"sentence1": "p", "sentence2": "h", "gold_label": "-"}\n')
    (tmp_path / "b.tsv").write_text('premise\thypothesis\tlabel\np\t"h\tentailment\n')
    (tmp_path / "c.jsonl").write_text("".join(
        json.dumps({"query": "h", "document": "p", "label": label, "idx": "x"}) + "\n" for label in (1, 0, 2)))
    for name, text in (("s1.dev", "p\n"), ("s2.dev", "h\n"), ("labels.dev", "contradiction\n")):
        (tmp_path / name).write_text(text)
    found = [read_pairs(tmp_path / name, "train") for name in ("a.jsonl", "b.tsv", "c.jsonl", "labels.dev")]
    assert [d.examples[0].label for d in found] == [1, 2, 0, 0]
    # The numbered layout counts 0 neutral, 1 contradiction, 2 entailment; ours orders by similarity.
    assert [example.label for example in found[2].examples] == [0, 1, 2]
    assert [d.examples[0].sentences for d in found] == [("p", "h"), ("p", '"h'), ("p", "h"), ("p", "h")]
    assert found[0].skipped == [(2, "without an agreed label")] and "1 without an agreed label" in found[0].report()
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ValueError, match="bad.jsonl:1: columns are x; expected sentence1, sentence2, gold_label or"):
        read_pairs(tmp_path / "bad.jsonl", "train")
    (tmp_path / "s1.dev").write_text("p\nq\n")
    with pytest.raises(ValueError, match="1 labels for 2 and 1"):
        read_pairs(tmp_path / "labels.dev", "train")


@pytest.mark.parametrize(("kind", "options", "file", "split"), [
    ("sentiment", {}, "ids-sst-train.csv", "train"), ("paraphrase", {}, "quora-test-student.csv", "test"),
    ("similarity", {}, "sts-dev.csv", "dev"), ("masked_words", {}, "sts-dev.csv", "dev"),
    ("inference", {}, "nli-dev.jsonl", "dev"),
    ("inference_triplets", {}, "nli-train.jsonl", "train"), ("glue", {"layout": "mrpc"}, "MRPC/train.tsv", "train")])
def test_a_large_files_examples_stay_on_disk(monkeypatch, tiny_tokenizer, tmp_path, kind, options, file, split):
    toy.write_course_files(tmp_path, train=12, dev=6, test=6)
    toy.write_glue_files(tmp_path, train=12, dev=6, test=6)
    task = make_task(kind, kind, tiny_tokenizer, TINY, {"max_length": 8, **options})
    in_memory = task.read(tmp_path / file, split).examples
    monkeypatch.setattr(corpora.examples, "LARGE_FILE", 0)
    on_disk = task.read(tmp_path / file, split).examples
    assert isinstance(on_disk, DiskList) == (kind != "inference_triplets")  # made of many rows, they are made in memory
    assert task.tokenize(on_disk) == task.tokenize(in_memory)
    assert list(on_disk) == list(in_memory) and on_disk[0].ids
    for both in ([on_disk, in_memory], [in_memory, on_disk]):
        assert list(joined(both)) == 2 * in_memory


def test_real_nli_files_are_read_whole(shared_data):
    assert len(read_pairs(shared_data / "nli/mnli/dev.jsonl", "dev").examples) == 9815
    assert len(read_pairs(shared_data / "nli/snli/labels.dev", "dev").examples) == 9842
    assert len(read_pairs(shared_data / "nli/counterfactual/original/dev.tsv", "dev").examples) == 200


def test_blank_labels_are_counted_in_the_real_files(tiny_tokenizer, shared_data):
    task = make_task("paraphrase", "para", tiny_tokenizer, TINY, {})
    dataset = task.read(shared_data / "cs224n/quora-dev.csv", "dev")
    assert len(dataset.examples) == 20_212 and len(dataset.skipped) == 2
    as_test = task.read(shared_data / "cs224n/quora-dev.csv", "test")
    assert len(as_test.examples) == 20_214 and not as_test.skipped


@pytest.mark.parametrize(("kind", "options", "message"), [
    ("sentiment", {"pooling": "average"}, "pooling is 'average'; known"),
    ("inference_triplets", {"pooling": "bogus"}, "pooling is 'bogus'; known"),
    ("glue", {"pooling": "bogus"}, "pooling is 'bogus'; known"), ("phrases", {"pooling": "cls"}, "pooling is 'cls'"),
    ("sentiment", {"classes": -1}, "classes is -1"), ("sentiment", {"dropout": 1.0}, "dropout is 1.0"),
    ("paraphrase", {"temperature": 0.0}, "temperature is 0.0"), ("paraphrase", {"margin": math.nan}, "margin is nan"),
    ("similarity", {"loss": "hinge", "margin": 5.0}, "two cosines differ by at most 2"),
    ("glue", {"layout": "cola", "encoding": "siamese"}, "cola has one sentence"),
    ("glue", {"layout": "mnli", "loss": "hinge"}, "does not fit the three classes"),
    ("paraphrase", {"combination": "u,w"}, "unknown part 'w'"),
    ("paraphrase", {"loss": "cross"}, "loss is 'cross'; known"),
    ("paraphrase", {"encoding": "cross", "head": "cosine"}, "a cross-encoded pair has one"),
    ("similarity", {"encoding": "cross", "head": "linear", "loss": "info_nce"}, "use encoding 'siamese'"),
    ("similarity", {"encoding": "both", "head": "linear", "loss": "info_nce"}, "use encoding 'siamese'"),
    ("paraphrase", {"encoding": "both", "head": "cosine"}, "head 'cosine' compares two vectors"),
    ("paraphrase", {"encoding": "both", "trunk": "t"}, "its tasks are siamese"),
    ("inference", {"head": "cosine"}, "needs several"),
    ("masked_words", {"share": 0.0}, "share is 0.0"), ("masked_words", {"own_layers": 1}, "train the encoder"),
    ("inference_triplets", {"objective": "quadruplet"}, "objective is 'quadruplet'"),
])
def test_a_wrong_choice_is_a_clear_error(tiny_tokenizer, kind, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(kind, "t", tiny_tokenizer, TINY, options)


def test_every_kind_can_be_made_with_its_defaults(tiny_tokenizer):
    for kind in TASKS:
        assert make_task(kind, "t", tiny_tokenizer, TINY, {}).metric


def test_a_long_sequence_is_cut_and_counted(tiny_tokenizer):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {"max_length": 10})
    examples = [Example("1", ("the dog " * 50,), 1), Example("2", ("the dog",), 2)]
    assert task.tokenize(examples) == 1
    assert task.collate(examples).tokens.input_ids.shape == (2, 10)


@pytest.mark.parametrize("case", cases("submission"))
def test_predictions_of_each_split_go_to_its_own_file(case, tiny_tokenizer, tmp_path):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {})
    for split in ("dev", "test"):
        examples = [Example(i, ("x",)) for i in case["input"][f"{split}_ids"]]
        path = tmp_path / f"{split}.csv"
        task.write_predictions(path, examples, np.array(case["input"][f"{split}_pred"]))
        lines = path.read_text().split("\n")
        assert lines[0] == "id \t Predicted_Sentiment " and lines[-1] == ""
        found = {line.split(",")[0].strip(): int(line.split(",")[1].strip()) for line in lines[1:-1]}
        assert found == case["expected"][f"{split}_file"]


def test_prediction_files_are_the_courses_to_the_letter(tiny_tokenizer, tmp_path):
    expected = {"sentiment": ("id \t Predicted_Sentiment ", "4"), "paraphrase": ("id \t Predicted_Is_Paraphrase ", "1"),
                "similarity": ("id \t Predicted_Similiary ", "2.5")}
    for kind, (header, value) in expected.items():
        task = make_task(kind, kind, tiny_tokenizer, TINY, {})
        task.write_predictions(tmp_path / kind, [Example("ab", ("x",)), Example("cd", ("y",))],
                               np.array([float(value)] * 2))
        assert (tmp_path / kind).read_text() == f"{header}\nab , {value} \ncd , {value} \n"
        assert read_predictions(tmp_path / kind) == [("ab", float(value)), ("cd", float(value))]


def test_the_overall_score_of_a_published_row():
    # Lee et al., nli_triplet, dev: .532 / .881 / .880 gives .784
    assert overall_score(0.532, 0.881, 0.880) == pytest.approx(0.784, abs=5e-4)


@pytest.mark.parametrize(("text", "message"), [
    ("", "p.csv:1: found"), ("x\n", "p.csv:1: found"), ("id\na\n", "p.csv:2: found"), ("id\na , b\n", "p.csv:2: found"),
    ("id\n1 2\n", "p.csv:2: found"), ("id\na , 1\nb , 2\na , 1\n", "p.csv:4: id 'a' stands on line 2 already"),
    ("id\na , nan\n", "p.csv:2: found"), ("id\na , inf\n", "p.csv:2: found"), ("id\n , 1\n", "p.csv:2: found"),
    ("id\na , 1_0\n", "p.csv:2: found"), ("id\na , \u0663\n", "p.csv:2: found"), ("id\n", "p.csv: has no row")])
def test_a_broken_prediction_file_is_a_clear_error(tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_predictions(tmp_path / "p.csv")
