"""Transfer fine-tuning's objectives: spans, pooling, the three classes, and every ablation."""
import json
from collections import Counter

import pytest
import torch
from conftest import TINY, cases, make_task
from torch.testing import assert_close

from minbert.bert import BertModel
from tasks.losses import symmetric_divergence
from tasks.options import ABLATIONS
from tasks.phrases import IN_PARAPHRASE, PARAPHRASE, RANDOM, PhraseOutputs, piece_spans
from tasks.pooling import SpanAttention, pool_spans


def make(tokenizer, **options):
    return make_task("phrases", "tft", tokenizer, TINY, options)


@pytest.fixture
def examples(tiny_tokenizer, toy_directory):
    task = make(tiny_tokenizer)
    found = task.read(toy_directory / "train.jsonl", "train").examples
    task.tokenize(found)
    return found


@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_pooled_spans_equal_a_loop_and_so_do_their_gradients(pooling):
    torch.manual_seed(0)
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    spans = torch.tensor([[0, 2], [5, 6], [1, 12], [1, 12], [18, 20]])
    expected = []
    for start, end in spans.tolist():
        states = hidden[start:end]
        expected.append(states.amax(dim=0) if pooling == "max" else states.mean(dim=0))
    expected = torch.stack(expected)
    found = pool_spans(hidden, spans, pooling)
    assert_close(found, expected)
    weights = torch.randn(5, 6, dtype=torch.float64)
    (a,) = torch.autograd.grad((found * weights).sum(), hidden)
    (b,) = torch.autograd.grad((expected * weights).sum(), hidden)
    assert_close(a, b)


@pytest.mark.parametrize("rows", [1, 3])
def test_span_attention_is_lin_et_al_with_its_rows_side_by_side(rows):
    """Eqs. 6 to 8, one span at a time; one row has no penalty."""
    torch.manual_seed(0)
    attention = SpanAttention(6, rows, attention_size=5).double()
    with torch.no_grad():
        attention.second.weight *= 100  # scores far apart: a softmax that overflows would show
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    groups = [torch.tensor([[0, 2], [5, 6], [1, 12], [1, 12], [18, 20]]), torch.tensor([[3, 9]])]
    found = attention(hidden, groups)
    for spans, (vectors, penalty) in zip(groups, found, strict=True):
        expected, penalties = [], []
        for start, end in spans.tolist():
            states = hidden[start:end]
            weights = (attention.second.weight @ (attention.first.weight @ states.T).tanh()).softmax(dim=1)  # A: [r, n]
            expected.append((weights @ states).flatten())
            penalties.append((weights @ weights.T - torch.eye(rows)).square().sum())
        assert_close(vectors, torch.stack(expected))
        assert_close(penalty, torch.stack(penalties).mean() if rows > 1 else torch.zeros((), dtype=torch.float64))
        total = vectors.square().sum() + penalty
        wanted = torch.stack(expected).square().sum() + (torch.stack(penalties).mean() if rows > 1 else 0)
        for a, b in zip(torch.autograd.grad(total, [hidden, *attention.parameters()], retain_graph=True),
                        torch.autograd.grad(wanted, [hidden, *attention.parameters()], retain_graph=True), strict=True):
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
    ids = batch.tokens.input_ids.flatten()
    return [" ".join(task.tokenizer.vocabulary[i] for i in ids[a:b].tolist()) for a, b in spans.tolist()]


@pytest.mark.parametrize("random_sources", ["all", "aligned"])
def test_the_three_classes_are_made_as_the_paper_says(tiny_tokenizer, examples, random_sources):
    task = make(tiny_tokenizer) if random_sources == "all" else make(tiny_tokenizer, random_sources="aligned")
    task.train()
    batch = task.collate(examples[:10])
    counts = Counter(batch.labels.tolist())
    assert 20 < counts[IN_PARAPHRASE] <= counts[PARAPHRASE] and counts[RANDOM] > 20
    assert (counts[RANDOM] > counts[PARAPHRASE]) == (random_sources == "all")
    assert batch.sentence_labels.tolist() == [1] * 10 + [0] * 10
    sources, targets = token_texts(task, batch, batch.source), token_texts(task, batch, batch.target)
    for source, target, label, owner in zip(sources, targets, batch.labels.tolist(), batch.owners.tolist(),
                                            strict=True):
        example = examples[owner]
        pieces = [[task.tokenizer.vocabulary[i] for i in ids] for ids in example.ids]
        aligned = {(" ".join(p for p, w in zip(pieces[0], example.owners[0], strict=True) if a <= w < b),
                    " ".join(p for p, w in zip(pieces[1], example.owners[1], strict=True) if c <= w < d))
                   for a, b, c, d in example.alignments}
        everything = {" ".join(p for p, w in zip(pieces[0], example.owners[0], strict=True) if a <= w < b)
                      for a, b in example.phrases[0]}
        assert source in (everything if label == RANDOM and random_sources == "all" else {s for s, _ in aligned})
        if label == PARAPHRASE:
            assert (source, target) in aligned
        if label == IN_PARAPHRASE:
            assert (source, target) not in aligned and target in " ".join(pieces[1])
    if random_sources == "all":  # each phrase of s of two tokens or more, once
        drawn = Counter(owner for label, owner in zip(batch.labels.tolist(), batch.owners.tolist(), strict=True)
                        if label == RANDOM)
        for owner, example in enumerate(examples[:10]):
            assert drawn[owner] == sum(sum(a <= w < b for w in example.owners[0]) > 1 for a, b in example.phrases[0])
    # Every span lies within one sequence, source before its [SEP], target after.
    length = batch.tokens.input_ids.shape[1]
    for spans in (batch.source, batch.target):
        assert torch.equal(spans[:, 0] // length, (spans[:, 1] - 1) // length)
    assert torch.equal(batch.source[:, 0] // length, batch.target[:, 0] // length)
    types = batch.tokens.token_type_ids.flatten()
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
def test_every_ablation_has_its_classes_and_its_accuracies(tiny_tokenizer, examples, ablation):
    torch.manual_seed(0)
    encoder = BertModel(TINY).eval()
    task = make(tiny_tokenizer, ablation=ablation).eval()
    batch = task.collate(examples[:6])
    outputs = task.outputs(encoder, batch)
    assert (outputs.phrases is None) == (ablation == "sentence_only")
    assert (outputs.sentences is None) == (ablation in ("three_way", "binary"))
    assert set(batch.labels.tolist()) == ({PARAPHRASE, IN_PARAPHRASE} if ablation == "binary"
                                          else {PARAPHRASE, IN_PARAPHRASE, RANDOM})
    assert len(batch.sentence_labels) == (6 if ablation == "binary" else 12)
    if outputs.phrases is not None:
        assert outputs.phrases.shape[1] == (2 if ablation == "binary" else 3)
    counts = task.predict(encoder, batch)
    found = {name: function(counts.numpy(), None) for name, function in task.metrics().items()}
    expected = {}
    if outputs.phrases is not None:
        expected["phrasal"] = (outputs.phrases.argmax(dim=1) == batch.labels).double().mean().item()
    if outputs.sentences is not None:
        expected["sentential"] = (outputs.sentences.argmax(dim=1) == batch.sentence_labels).double().mean().item()
    assert found == pytest.approx(expected)


def test_the_loss_is_the_sum_of_both_cross_entropies(tiny_tokenizer, examples):
    torch.manual_seed(0)
    encoder = BertModel(TINY).eval()
    task = make(tiny_tokenizer)
    task.eval()
    batch = task.collate(examples[:6])
    outputs = task.outputs(encoder, batch)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = (cross_entropy(outputs.phrases, batch.labels)
                + cross_entropy(outputs.sentences, batch.sentence_labels))
    assert_close(task.criterion(outputs, batch), expected)


def test_the_loss_has_the_penalty_of_span_attention(tiny_tokenizer, examples):
    torch.manual_seed(0)
    encoder = BertModel(TINY).eval()
    task = make(tiny_tokenizer, pooling="attentive", looks=3).eval()
    batch = task.collate(examples[:6])
    outputs = task.outputs(encoder, batch)
    hidden = encoder(batch.tokens.input_ids, batch.tokens.attention_mask, batch.tokens.token_type_ids)
    (_, first), (_, second) = task.attention(hidden.last_hidden_state.flatten(0, 1), (batch.source, batch.target))
    cross_entropy = torch.nn.functional.cross_entropy
    assert first > 0.1 and second > 0.1
    assert_close(task.criterion(outputs, batch),
                 cross_entropy(outputs.phrases, batch.labels) + 0.03 * (first + second) / 2
                 + cross_entropy(outputs.sentences, batch.sentence_labels))


@pytest.mark.parametrize("features", ["full", "simple"])
def test_phrase_and_sentence_logits_are_the_papers_equations(tiny_tokenizer, examples, features):
    """Eqs. 1 and 2, one phrase pair at a time: the maximum over its tokens, the features, one linear layer."""
    torch.manual_seed(0)
    encoder = BertModel(TINY).eval()
    task = make(tiny_tokenizer, features=features).eval()
    batch = task.collate(examples[:3])
    outputs = task.outputs(encoder, batch)
    tokens = batch.tokens
    hidden = encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids).last_hidden_state
    length = tokens.input_ids.shape[1]
    for index in range(len(batch.labels)):
        sides = []
        for spans in (batch.source, batch.target):
            start, end = spans[index].tolist()
            row = start // length
            sides.append(hidden[row, start - row * length:end - row * length].amax(dim=0))
        hs, ht = sides
        parts = [hs, ht, hs * ht, (hs - ht).abs()] if features == "full" else [hs, ht]
        assert_close(outputs.phrases[index], task.phrase_head(torch.cat(parts)), rtol=1e-4, atol=1e-5)
    assert_close(outputs.sentences, task.sentence_head(hidden[:, 0]))


def write_pairs(path, *pairs):
    path.write_text("".join(json.dumps({"source": s.split(), "target": t.split(), "alignments": a}) + "\n"
                            for s, t, a in pairs))


def test_a_target_that_says_the_same_is_no_negative(tiny_tokenizer, tmp_path):
    """A phrase's text may stand twice in a sentence, or in the random one: it is excluded by text, not by position."""
    twice = ("the dog found the dog", "a hound met a hound in the park",
             [[0, 2, 0, 2], [3, 5, 3, 5]])  # both aligned targets read "a hound"
    same = ("the dog ran", "the dog was in the park", [[0, 2, 0, 2]])  # the target repeats the source's words
    random = ("in the park", "the dog and a hound", [[0, 3, 0, 2]])
    write_pairs(tmp_path / "t.jsonl", twice, same, random)
    task = make(tiny_tokenizer, random_sources="all")
    found = task.read(tmp_path / "t.jsonl", "train").examples
    for example, words in zip(found, (8, 6, 5), strict=True):  # every two words of a target may be a negative
        example.phrases = (example.phrases[0], [(i, i + 2) for i in range(words - 1)])
    task.tokenize(found)
    task.train()
    seen = Counter()
    for step in range(200):
        torch.manual_seed(step)
        batch = task.collate(found)
        sources, targets = token_texts(task, batch, batch.source), token_texts(task, batch, batch.target)
        for source, target, label, owner in zip(sources, targets, batch.labels.tolist(), batch.owners.tolist(),
                                                strict=True):
            seen[label] += 1
            if label != PARAPHRASE and source == "the dog":
                assert target != "the dog" and (owner != 0 or target != "a hound")
    assert seen[IN_PARAPHRASE] > 100 and seen[RANDOM] > 100


def test_a_divergence_adds_up_both_tasks(tiny_tokenizer):
    torch.manual_seed(0)
    first, second = (PhraseOutputs(torch.randn(5, 3), torch.randn(4, 2), torch.zeros(())) for _ in range(2))
    task = make(tiny_tokenizer)
    expected = symmetric_divergence(first.phrases, second.phrases) + symmetric_divergence(first.sentences,
                                                                                          second.sentences)
    assert_close(task.divergence(first, second), expected)
    first.phrases = second.phrases = None
    assert_close(task.divergence(first, second),
                 symmetric_divergence(first.sentences, second.sentences))


@pytest.mark.parametrize(("rows", "message"), [
    ([], "empty|0 pairs"), (["{"], ":1: .*JSON"), (['{"source": ["a"], "target": ["b"]}'], ":1: no field alignments"),
    (['{"source": ["a"], "target": ["b"], "alignments": [[0, 5, 0, 1]]}'], ":1: alignments is .*half-open"),
    (['{"source": ["a"], "target": ["b"], "alignments": [[0, 1, 0]]}'], ":1: alignments is"),
    (['{"source": ["a"], "target": ["b"], "alignments": [["0", 1, 0, 1]]}'], ":1: alignments is"),
    (['{"source": "a", "target": ["b"], "alignments": []}'], ":1: source is 'a'; expected a list"),
    (['{"source": ["a"], "target": [null], "alignments": []}'], ":1: target is .*expected a list of words"),
    (['{"source": ["a"], "target": ["b"], "alignments": [], "target_phrases": [[0, 2]]}'], ":1: target_phrases is"),
    (['{"source": ["a"], "target": ["b"], "alignments": 3}'], ":1: alignments is"),
    (['{"source": ["a"], "target": ["b"], "alignments": []}'] * 3, "0 pairs with aligned phrases")])
def test_broken_files_are_clear_errors(tiny_tokenizer, tmp_path, rows, message):
    (tmp_path / "t.jsonl").write_text("".join(row + "\n" for row in rows))
    with pytest.raises(ValueError, match=message):
        make(tiny_tokenizer).read(tmp_path / "t.jsonl", "train")
