"""Transfer fine-tuning's objectives: spans, pooling, the three classes, and every ablation."""
import json
from collections import Counter

import pytest
import torch
from conftest import TINY, cases
from torch.testing import assert_close

from minbert.bert import BertModel
from tasks import make_task
from tasks.phrases import ABLATIONS, IN_PARAPHRASE, PARAPHRASE, RANDOM, SPAN_POOLINGS, piece_spans, pool_spans


def make(tokenizer, **options):
    return make_task("phrases", "tft", tokenizer, TINY, options)


@pytest.fixture
def examples(tiny_tokenizer, toy_directory):
    task = make(tiny_tokenizer)
    found = task.read(toy_directory / "train.jsonl", "train").examples
    task.tokenize(found)
    return found


@pytest.mark.parametrize("pooling", SPAN_POOLINGS)
def test_pooled_spans_equal_a_loop_and_so_do_their_gradients(pooling):
    torch.manual_seed(0)
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(20, 3, dtype=torch.float64) * 50
    spans = torch.tensor([[0, 2], [5, 6], [1, 12], [1, 12], [18, 20]])
    expected = []
    for start, end in spans.tolist():
        rows = hidden[start:end]
        expected.append({"max": lambda r=rows: r.amax(dim=0), "mean": lambda r=rows: r.mean(dim=0),
                         "attentive": lambda r=rows, a=start, b=end: (scores[a:b].softmax(dim=0).T @ r).mean(dim=0)
                         }[pooling]())
    expected = torch.stack(expected)
    found = pool_spans(hidden, spans, pooling, scores)
    assert_close(found, expected)
    weights = torch.randn(5, 6, dtype=torch.float64)
    (a,) = torch.autograd.grad((found * weights).sum(), hidden)
    (b,) = torch.autograd.grad((expected * weights).sum(), hidden)
    assert_close(a, b)


def test_word_spans_become_token_spans_and_cut_ones_are_left_out():
    owners = [0, 1, 1, 1, 2, 4]  # word 3 has no token
    spans = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 4), (4, 5), (0, 5)]
    assert piece_spans(owners, spans, 6) == {(0, 2): (0, 4), (1, 2): (1, 4), (2, 3): (4, 5), (4, 5): (5, 6)}
    assert piece_spans(owners, spans, 3) == {}
    assert piece_spans(owners, spans, 5) == {(0, 2): (0, 4), (1, 2): (1, 4), (2, 3): (4, 5)}


@pytest.mark.parametrize("case", cases("phrase alignment"))
def test_a_phrase_that_truncation_cuts_is_dropped(case, tiny_tokenizer):
    start, end = case["input"]["piece_span"]
    limit = case["input"]["max_length"]
    kept = limit - 2  # [CLS] and [SEP]: the last usable index is limit - 2
    owners = list(range(600))
    assert bool(piece_spans(owners, [(start - 1, end - 1)], kept)) == case["expected"]["kept"]
    assert piece_spans(owners, [(start - 1, kept)], kept)


def test_cut_phrases_are_counted_and_said(tiny_tokenizer, tmp_path):
    long = {"source": ["the", "dog"] + ["zq"] * 30, "target": ["the", "dog"] + ["zq"] * 30,
            "alignments": [[0, 2, 0, 2], [28, 32, 28, 32]]}
    (tmp_path / "t.jsonl").write_text((json.dumps(long) + "\n") * 3)
    task = make(tiny_tokenizer, max_length=60)
    examples = task.read(tmp_path / "t.jsonl", "train").examples
    assert task.tokenize(examples) == 3
    assert task.note() == "3 aligned phrases are cut by truncation, and left out"
    task.tokenize(task.read(tmp_path / "t.jsonl", "train").examples[:0] or examples[:1])
    assert "1 aligned" in task.note()


def token_texts(task, batch, spans):
    ids = batch.tokens.packing.pack(batch.tokens.input_ids)
    return [" ".join(task.tokenizer.vocabulary[i] for i in ids[a:b].tolist()) for a, b in spans.tolist()]


def test_the_three_classes_are_made_as_the_paper_says(tiny_tokenizer, examples):
    task = make(tiny_tokenizer)
    task.train()
    batch = task.collate(examples[:10])
    counts = Counter(batch.labels.tolist())
    assert counts[PARAPHRASE] == counts[IN_PARAPHRASE] == counts[RANDOM] > 20  # balanced
    assert batch.sentence_labels.tolist() == [1] * 10 + [0] * 10
    sources, targets = token_texts(task, batch, batch.source), token_texts(task, batch, batch.target)
    for source, target, label, owner in zip(sources, targets, batch.labels.tolist(), batch.owners.tolist(),
                                            strict=True):
        example = examples[owner]
        pieces = [[task.tokenizer.vocabulary[i] for i in ids] for ids in example.ids]
        aligned = {(" ".join(p for p, w in zip(pieces[0], example.owners[0], strict=True) if a <= w < b),
                    " ".join(p for p, w in zip(pieces[1], example.owners[1], strict=True) if c <= w < d))
                   for a, b, c, d in example.alignments}
        assert source in {s for s, _ in aligned}
        if label == PARAPHRASE:
            assert (source, target) in aligned
        if label == IN_PARAPHRASE:
            assert (source, target) not in aligned and target in " ".join(pieces[1])
    # Every span lies within one sequence, source before its [SEP], target after.
    rows = batch.tokens.packing.positions // batch.tokens.input_ids.shape[1]
    for spans in (batch.source, batch.target):
        assert torch.equal(rows[spans[:, 0]], rows[spans[:, 1] - 1])
    types = batch.tokens.packing.pack(batch.tokens.token_type_ids)
    assert (types[batch.source[:, 0]] == 0).all() and (types[batch.target[:, 0]] == 1).all()
    lengths = batch.source[:, 1] - batch.source[:, 0]
    assert (lengths >= 2).all()


def test_negatives_are_drawn_anew_in_training_and_fixed_in_evaluation(tiny_tokenizer, examples):
    task = make(tiny_tokenizer)
    task.train()
    torch.manual_seed(0)
    first, second = task.collate(examples[:8]), task.collate(examples[:8])
    assert first.target.shape != second.target.shape or not torch.equal(first.target, second.target)
    torch.manual_seed(0)
    assert torch.equal(task.collate(examples[:8]).target, first.target)
    task.eval()
    assert torch.equal(task.collate(examples[:8]).target, task.collate(examples[:8]).target)


@pytest.mark.parametrize("ablation", ABLATIONS)
@pytest.mark.parametrize("features", ["full", "simple"])
@pytest.mark.parametrize("pooling", SPAN_POOLINGS)
def test_every_ablation_trains(tiny_tokenizer, examples, ablation, features, pooling):
    torch.manual_seed(0)
    encoder = BertModel(TINY)
    task = make(tiny_tokenizer, ablation=ablation, features=features, pooling=pooling)
    task.train()
    batch = task.collate(examples[:6])
    if ablation == "binary":
        assert RANDOM not in batch.labels and len(batch.sentence_labels) == 6
    loss = task.loss(encoder, batch)
    loss.backward()
    assert loss.isfinite() and encoder.encoder.layer[0].output.dense.weight.grad.isfinite().all()
    task.eval()
    counts = task.predict(encoder, task.collate(examples[:6]))
    assert counts.shape == (6, 4) and (counts[:, 0] <= counts[:, 1]).all() and (counts[:, 2] <= counts[:, 3]).all()
    found = {name: function(counts.numpy(), None) for name, function in task.metrics().items()}
    assert set(found) == {"full": {"phrasal", "sentential"}, "sentence_only": {"sentential"},
                          "three_way": {"phrasal"}, "binary": {"phrasal"}}[ablation]


def test_the_loss_is_the_sum_of_both_cross_entropies(tiny_tokenizer, examples):
    torch.manual_seed(0)
    encoder = BertModel(TINY).eval()
    task = make(tiny_tokenizer)
    task.eval()
    batch = task.collate(examples[:6])
    phrases, sentences = task.outputs(encoder, batch)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = cross_entropy(phrases, batch.labels) + cross_entropy(sentences, batch.sentence_labels)
    assert_close(task.criterion((phrases, sentences), batch), expected)


@pytest.mark.parametrize(("rows", "message"), [
    ([], "empty|0 pairs"), (["{"], ":1: .*JSON"), (['{"source": ["a"], "target": ["b"]}'], ":1: no field alignments"),
    (['{"source": ["a"], "target": ["b"], "alignments": [[0, 5, 0, 1]]}'], ":1: an alignment is not inside"),
    (['{"source": ["a"], "target": ["b"], "alignments": []}'] * 3, "0 pairs with aligned phrases")])
def test_broken_files_are_clear_errors(tiny_tokenizer, tmp_path, rows, message):
    (tmp_path / "t.jsonl").write_text("".join(row + "\n" for row in rows))
    with pytest.raises(ValueError, match=message):
        make(tiny_tokenizer).read(tmp_path / "t.jsonl", "train")
