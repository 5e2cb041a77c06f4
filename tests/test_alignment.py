"""Word alignment and phrase extraction, against definitions written out and against gold that the project makes."""
import fcntl
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from alignment import __main__ as program
from alignment import evaluate as evaluation
from alignment.choices import EXTRACTORS, METHODS
from alignment.corpus import Pair, Settings, align_corpus, read_pairs
from alignment.evaluate import crosses, word_scores
from alignment.extraction import bracket, extract, koehn, trees
from alignment.jsonl import (
    AlignedPair,
    parse_line,
    read_aligned,
    read_any,
    read_ists,
    read_pharaoh,
    read_phrase_lines,
    split_words,
)
from alignment.trees import boundary_strengths, lexical_strength, read_brackets, tree_spans
from alignment.words import (
    align,
    cosine_matrix,
    identity,
    intersection,
    itermax,
    transport,
    transport_plan,
    word_vectors,
)
from corpora import toy
from minbert.weights import load_encoder

# ---- words -----------------------------------------------------------------------------------------------------------


def test_word_vectors_are_means_over_their_sub_words(tiny_model, tiny_tokenizer):
    words = ["the", "zq", "dog", ""]  # a known word, one of two pieces, a known one, one without any
    (found,) = word_vectors(tiny_model, tiny_tokenizer, [words], (0, 2))
    ids, owners = tiny_tokenizer.word_ids(words)
    with torch.inference_mode():
        states = tiny_model(torch.tensor([tiny_tokenizer.build(ids)[0]]), output_hidden_states=True).hidden_states
    for index, layer in enumerate((0, 2)):
        for word in range(3):
            rows = [position + 1 for position, owner in enumerate(owners) if owner == word]
            expected = states[layer][0, rows].mean(dim=0).numpy()
            np.testing.assert_allclose(found[word, index], expected, rtol=1e-4, atol=1e-5)
    assert (found[3] == 0).all()


def test_vectors_do_not_depend_on_what_else_is_encoded(tiny_model, tiny_tokenizer):
    sentences = [["the", "dog"], ["a", "crowd", "of", "people", "ran"] * 10, ["x"]]
    together = word_vectors(tiny_model, tiny_tokenizer, sentences, (1,))
    for sentence, vectors in zip(sentences, together, strict=True):
        (alone,) = word_vectors(tiny_model, tiny_tokenizer, [sentence], (1,))
        np.testing.assert_allclose(vectors, alone, rtol=1e-3, atol=1e-5)


def test_a_sentence_beyond_the_encoders_limit_is_zeros_there(tiny_model, tiny_tokenizer):
    (found,) = word_vectors(tiny_model, tiny_tokenizer, [["dog"] * 100], (1,))
    assert (found[:62] != 0).any(axis=(1, 2)).all() and (found[62:] == 0).all()


def random_similarity(n=5, m=7, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, m))


@pytest.mark.parametrize("seed", range(10))
def test_intersection_is_mutual_best(seed):
    s = random_similarity(seed=seed)
    expected = [(i, j) for i in range(5) for j in range(7) if s[i, j] == s[i].max() and s[i, j] == s[:, j].max()]
    assert intersection(s) == expected
    assert intersection(s, 0.9) == [(i, j) for i, j in expected if s[i, j] >= 0.9]


@pytest.mark.parametrize("seed", range(10))
def test_itermax_contains_intersection_and_the_second_round_adds_between_free_words(seed):
    s = random_similarity(seed=seed)
    first, both = set(intersection(s)), set(itermax(s))
    assert first <= both
    assert all(link not in {(i, j) for i in {a for a, _ in first} for j in {b for _, b in first}}
               for link in both - first)


@pytest.mark.parametrize("seed", range(5))
def test_the_plan_is_the_entropic_optimum_with_the_right_margins(seed):
    """Against a general solver: maximise <S, P> + r H(P) over plans with the same row and column sums."""
    s = random_similarity(2, 2, seed)
    plan = transport_plan(s, bin_score=0.2, regularization=0.3, iterations=2000)
    scores = np.full((3, 3), 0.2)
    scores[:2, :2] = s
    margins = np.array([1.0, 1.0, 2.0])

    def loss(x):
        return -(x * scores.ravel()).sum() + 0.3 * (x * np.log(x) - x).sum()

    constraints = [{"type": "eq", "fun": lambda x, k=k: x.reshape(3, 3)[k].sum() - margins[k]} for k in range(3)]
    constraints += [{"type": "eq", "fun": lambda x, k=k: x.reshape(3, 3)[:, k].sum() - margins[k]} for k in range(2)]
    # The last column's sum follows from the others; a solver does not like to be told twice.
    found = optimize.minimize(loss, np.outer(margins, margins).ravel() / 4, bounds=[(1e-6, None)] * 9,
                              constraints=constraints, options={"ftol": 1e-14, "maxiter": 1000})
    np.testing.assert_allclose(plan, found.x.reshape(3, 3)[:2, :2], atol=1e-4)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e3])
def test_plans_are_finite_and_no_word_gives_more_than_itself(scale):
    plan = transport_plan(scale * random_similarity(6, 4), iterations=500)
    assert np.isfinite(plan).all() and (plan >= 0).all()
    assert (plan.sum(axis=1) <= 1 + 1e-6).all() and (plan.sum(axis=0) <= 1 + 1e-6).all()


def test_transport_leaves_words_without_a_partner_alone():
    s = np.array([[0.9, 0.0], [0.05, 0.02], [0.0, 0.8]])
    assert transport(s) == [(0, 0), (2, 1)]
    assert len(intersection(np.array([[0.05]]))) == 1 and transport(np.array([[-0.5]])) == []


def test_identity_matches_occurrence_by_occurrence():
    assert identity(["The", "dog", "the"], ["the", "the", "cat"]) == [(0, 0), (2, 1)]


@pytest.mark.parametrize("method", METHODS)
def test_empty_sides_have_no_links(method):
    assert align(method, [], [], np.zeros((0, 0))) == []


def test_centering_takes_out_what_all_words_share():
    rng = np.random.default_rng(0)
    a, b, shared = rng.normal(size=(3, 8)), rng.normal(size=(4, 8)), 100 * np.ones(8)
    np.testing.assert_allclose(cosine_matrix(a + shared, b + shared, shared), cosine_matrix(a, b), atol=1e-6)


# ---- trees -----------------------------------------------------------------------------------------------------------


def test_a_tree_splits_at_its_strongest_gaps():
    assert tree_spans(np.array([0, 1, 3, 2, 0.0])) == [(0, 4), (0, 2), (2, 4)]
    assert tree_spans(np.zeros(2)) == [] and tree_spans(np.zeros(1)) == []


@given(st.lists(st.floats(0, 5), min_size=2, max_size=20))
def test_tree_spans_never_cross_and_are_all_there(strengths):
    spans = tree_spans(np.array(strengths))
    n = len(strengths) - 1
    assert len(spans) == max(0, n - 1) and all(end - start >= 2 for start, end in spans)
    assert not any(a < c < b < d for a, b in spans for c, d in spans)


def test_closed_classes_bind_and_separate():
    assert lexical_strength("the", "dog") < lexical_strength("red", "dog") < lexical_strength("dog", "in")
    assert lexical_strength("dog", ",") > lexical_strength("dog", "and") > lexical_strength("dog", "is")
    words = "the dog ran in the park".split()
    assert (3, 6) in tree_spans(boundary_strengths(words, None))  # in the park


def test_brackets_are_read_and_wrong_ones_refused():
    words, spans = read_brackets("(S (NP the old dog) (VP (V ran) (PP in (NP the park))))")
    assert words == "the old dog ran in the park".split()
    assert spans == [(0, 3), (0, 7), (3, 7), (4, 7), (5, 7)]
    for text in ("(S a b", "(S a))", "", "()"):
        with pytest.raises(ValueError):
            read_brackets(text, "line 3")


# ---- extraction ------------------------------------------------------------------------------------------------------

links_of = st.integers(1, 6).flatmap(lambda n: st.integers(1, 6).flatmap(lambda m: st.tuples(
    st.just(n), st.just(m), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, m - 1)), max_size=8))))


def consistent(links, s0, s1, t0, t1):
    inside = [(i, j) for i, j in links if s0 <= i < s1 and t0 <= j < t1]
    leaving = [(i, j) for i, j in links if (s0 <= i < s1) != (t0 <= j < t1)]
    return bool(inside) and not leaving


@settings(max_examples=200, deadline=None)
@given(links_of)
def test_koehn_is_every_consistent_pair_by_definition(drawn):
    n, m, links = drawn
    every = {(s0, s1, t0, t1) for s0 in range(n) for s1 in range(s0 + 1, n + 1)
             for t0 in range(m) for t1 in range(t0 + 1, m + 1)
             if consistent(links, s0, s1, t0, t1) and s1 - s0 <= 4 and t1 - t0 <= 4}
    assert set(koehn(links, n, m, max_words=4, extend=True)) == every
    tight = {(s0, s1, t0, t1) for s0, s1, t0, t1 in every
             if {t0, t1 - 1} <= {j for i, j in links if s0 <= i < s1}}
    assert set(koehn(links, n, m, max_words=4)) == tight


@settings(max_examples=200, deadline=None)
@given(links_of, st.integers(0, 100))
def test_bracket_blocks_are_consistent_and_never_cross(drawn, seed):
    n, m, links = drawn
    rng = np.random.default_rng(seed)
    blocks = bracket(links, rng.uniform(0, 5, n + 1), rng.uniform(0, 5, m + 1))
    assert blocks or not links
    for block in blocks:
        assert consistent(links, *block)
    for side in (0, 2):
        spans = [block[side:side + 2] for block in blocks]
        assert not any(a < c < b < d for a, b in spans for c, d in spans)


@settings(max_examples=100, deadline=None)
@given(links_of, st.integers(0, 100))
def test_trees_are_the_consistent_pairs_of_nodes(drawn, seed):
    n, m, links = drawn
    rng = np.random.default_rng(seed)
    nodes = tree_spans(rng.uniform(0, 5, n + 1)), tree_spans(rng.uniform(0, 5, m + 1))
    assert set(trees(links, *nodes, n, m)) == {(*s, *t) for s in nodes[0] for t in nodes[1]
                                               if consistent(links, *s, *t)}


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_lengths_and_real_constituents_are_respected(extractor):
    links = [(0, 0), (1, 1), (2, 2), (3, 3)]
    strengths = np.array([0, 1, 2, 1, 0.0])
    found = extract(extractor, links, strengths, strengths, min_words=2, max_words=2)
    assert (0, 2, 0, 2) in found and all(b - a == 2 == d - c for a, b, c, d in found)
    only = extract(extractor, links, strengths, strengths, spans=([(2, 4)], [(2, 4)]))
    assert only == [(2, 4, 2, 4)]


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_pair_survives_its_line():
    pair = AlignedPair(["a", '"b"', "ü"], ["c"], [(0, 2, 0, 1)], [(0, 2)], [(0, 1)])
    assert parse_line(pair.to_json(), "f:1") == pair


@pytest.mark.parametrize(("line", "message"), [
    ("{", "f:3: .*one JSON object"), ("[]", "f:3: found a JSON list"), ('{"source": "a b"}', "source is 'a b'"),
    ('{"source": ["a"], "target": []}', "target is"),
    ('{"source": ["a"], "target": ["b"]}', "alignments is a NoneType"),
    ('{"source": ["a"], "target": ["b"], "alignments": [[0, 2, 0, 1]]}', "half-open spans inside 1 and 1 words"),
    ('{"source": ["a"], "target": ["b"], "alignments": [[0, 0, 0, 1]]}', "half-open"),
    ('{"source": ["a"], "target": ["b"], "alignments": [[0, 1]]}', "half-open"),
    ('{"source": ["a"], "target": ["b"], "alignments": [[0, true, 0, 1]]}', "half-open"),
    ('{"source": ["a"], "target": ["b"], "alignments": [], "source_phrases": [[0, 9]]}', "source_phrases has"),
    ("[" * 100_000, "f:3"),
])
def test_a_broken_line_is_a_clear_error(line, message):
    with pytest.raises(ValueError, match=message):
        parse_line(line, "f:3")


def test_pharaoh_links():
    assert read_pharaoh("0-0 2-1", 3, 2, "f:1") == [(0, 0), (2, 1)]
    for text in ("0:0", "0-2", "3-0", "a-b", "-1-0"):
        with pytest.raises(ValueError, match="f:1: found"):
            read_pharaoh(text, 3, 2, "f:1")


def test_released_phrase_lines():
    pair = read_phrase_lines("a cat sat on the mat", "on the floor mat a cat sat", [
        "c8 on the mat ||| c12 on the floor mat", "c2 a cat ||| c3 a cat", "c4 sat ||| ---", "--- ||| c9 floor mat"],
        "f")
    assert pair.alignments == [(3, 6, 0, 4), (0, 2, 4, 6)]
    assert (2, 3) in pair.source_phrases and (2, 4) in pair.target_phrases
    with pytest.raises(ValueError, match="f:1: the phrase 'the dog' is not in the sentence"):
        read_phrase_lines("a cat", "a cat", ["c1 the dog ||| c2 a cat"], "f")
    with pytest.raises(ValueError, match="expected 'id words"):
        read_phrase_lines("a cat", "a cat", ["c1 a cat"], "f")


def test_ists_files(tmp_path):
    text = """<sentence id="1" status="">
// A man is on a bike
// The man rides
<source>
1 A :
</source>
<translation>
</translation>
<alignment>
1 2 <==> 1 2 // EQUI // 5 // A man <==> The man
3 <==> 3 // SIMI // 3 // is <==> rides
4 6 <==> 0 // NOALI // NIL // x <==> -not aligned-
</alignment>
</sentence>
"""
    (tmp_path / "a.wa").write_text(text)
    (found,) = read_ists(tmp_path / "a.wa")
    assert found.pair.alignments == [(0, 2, 0, 2), (2, 3, 2, 3)] and found.types == ["EQUI", "SIMI"]
    assert found.left_out == 1  # words 4 and 6 are no span
    (tmp_path / "b.wa").write_text(text.replace("1 2 <==>", "x <==>"))
    with pytest.raises(ValueError, match="b.wa:10: found"):
        read_ists(tmp_path / "b.wa")


def test_all_real_ists_files_are_read(shared_data):
    counts = {path.name: len(read_ists(path)) for path in (shared_data / "alignment/ists2016").rglob("*.wa")}
    assert counts["STSint.input.images.wa"] == 750 and counts["STSint.testinput.headlines.wa"] == 375


def test_words_keep_numbers_and_contractions_whole():
    assert split_words("The U.S. can't pay 3,000.5 well-known men.") == [
        "The", "U.S", ".", "can't", "pay", "3,000.5", "well-known", "men", "."]


# ---- the whole, on data the project ships ----------------------------------------------------------------------------


def toy_pairs(count=200):
    return toy.rows(toy.aligned_row, count, 5, "alignment-test")


def scores(found: list[set], gold: list[set]) -> tuple[float, float, float]:
    hits = sum(len(a & b) for a, b in zip(found, gold, strict=True))
    precision, recall = hits / max(1, sum(map(len, found))), hits / sum(map(len, gold))
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


@pytest.fixture(scope="module")
def aligned_toy(model_directory):
    encoder, tokenizer, _ = load_encoder(model_directory)
    rows = toy_pairs()
    pairs = [Pair(row["source"], row["target"]) for row in rows]
    return rows, {extractor: list(align_corpus(pairs, encoder, tokenizer, Settings(extractor=extractor, min_words=1),
                                               progress=False)) for extractor in EXTRACTORS}


def test_phrases_of_generated_pairs_are_found(aligned_toy):
    """Gold: the wordings of each role. Recall of exact spans; the baseline links identical words only."""
    rows, found = aligned_toy
    gold = [{tuple(a) for a in row["alignments"]} for row in rows]
    recall = {name: scores([set(pair.alignments) for pair in pairs], gold)[1] for name, pairs in found.items()}
    baseline = []
    for row in rows:
        strengths = [boundary_strengths(row[side], None) for side in ("source", "target")]
        baseline.append(set(extract("bracket", identity(row["source"], row["target"]), *strengths, min_words=1)))
    base = scores(baseline, gold)[1]
    assert recall["bracket"] > base + 0.1 and recall["bracket"] > 0.6, (recall, base)
    assert recall["trees"] > 0.4


def test_extraction_in_processes_gives_the_same(tiny_directory):
    encoder, tokenizer, _ = load_encoder(tiny_directory)
    pairs = [Pair(row["source"], row["target"]) for row in toy_pairs(30)]
    one, two = (list(align_corpus(pairs, encoder, tokenizer, Settings(), workers, progress=False))
                for workers in (1, 2))
    assert one == two and len(one) == 30


def corpus_file(tmp_path, count=40):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(" ".join(r["source"]) + "\t" + " ".join(r["target"]) + "\n" for r in toy_pairs(count)))
    return path


def test_the_program_writes_jsonl_and_goes_on_where_it_stopped(tmp_path, tiny_directory, monkeypatch, capsys):
    corpus, out = corpus_file(tmp_path), tmp_path / "aligned.jsonl"
    arguments = [str(corpus), "--out", str(out), "--weights", str(tiny_directory), "--workers", "1", "--no_progress"]
    assert program.main(arguments) == 0
    assert "phrase pairs a second" in capsys.readouterr().out
    expected = out.read_bytes()
    assert len(read_aligned(out)) == 40
    out.unlink()
    monkeypatch.setattr("alignment.corpus.CHUNK", 10)
    calls = []
    original = program.write_corpus.__globals__["extract_pair"]

    def dies(work):
        calls.append(work)
        if len(calls) == 25:
            raise OSError("the disk is full")
        return original(work)

    monkeypatch.setattr("alignment.corpus.extract_pair", dies)
    assert program.main(arguments) == 2 and not out.exists()
    part = tmp_path / "aligned.jsonl.part"
    part.write_bytes(part.read_bytes() + b'{"half')  # killed within a line
    assert program.main(arguments) == 0
    assert len(calls) < 25 + 40 and out.read_bytes() == expected and not part.exists()


def test_links_made_elsewhere_are_used(tmp_path, tiny_directory):
    corpus, out = tmp_path / "p.tsv", tmp_path / "o.jsonl"
    corpus.write_text("a b c d\tc d a b\t0-2 1-3 2-0 3-1\n" * 2)
    assert program.main([str(corpus), "--out", str(out), "--weights", str(tiny_directory), "--no_progress",
                         "--workers", "1"]) == 0
    assert {(0, 2, 2, 4), (2, 4, 0, 2)} <= set(read_aligned(out)[0].alignments)


def test_real_trees_replace_ours(tmp_path, tiny_directory, capsys):
    (tmp_path / "p.tsv").write_text("a b c d\tc d a b\t0-2 1-3 2-0 3-1\n")
    (tmp_path / "t.tsv").write_text("(S (X a) (Y b c) (Z d))\t(S (A c d) (B a b))\n")
    arguments = [str(tmp_path / "p.tsv"), "--out", str(tmp_path / "o.jsonl"), "--weights", str(tiny_directory),
                 "--no_progress", "--workers", "1", "--trees", str(tmp_path / "t.tsv")]
    assert program.main(arguments) == 0
    (pair,) = read_aligned(tmp_path / "o.jsonl")
    assert pair.alignments == [(0, 4, 0, 4)]  # "a b" and "c d" are no constituents of the source
    assert pair.source_phrases == [(0, 4), (1, 3)]
    (tmp_path / "t.tsv").write_text("(S a b)\n")
    assert program.main([*arguments[:2], str(tmp_path / "o2.jsonl"), *arguments[3:]]) == 2
    assert "t.tsv:1: found 1 columns" in capsys.readouterr().err


def test_aligned_files_of_every_form(tmp_path):
    (tmp_path / "a.phrases").write_text("a cat\na small cat\nc1 cat ||| c2 small cat\n\n"
                                        "a dog\nthe dog\nc1 dog ||| c1 dog\n")
    first, second = read_any(tmp_path / "a.phrases")
    assert first.alignments == [(1, 2, 1, 3)] and second.target == ["the", "dog"]
    (tmp_path / "b.phrases").write_text("a\nb\n\n\nonly\n")
    with pytest.raises(ValueError, match="b.phrases:5: a block of one line"):
        read_any(tmp_path / "b.phrases")
    (tmp_path / "c.phrases").write_text("a\nb\nc1 x ||| c2 b\n")
    with pytest.raises(ValueError, match="c.phrases:3: the phrase 'x'"):
        read_any(tmp_path / "c.phrases")
    with pytest.raises(ValueError, match="unknown form"):
        read_any(tmp_path / "d.txt")


@pytest.mark.parametrize(("text", "message"), [
    ("", "empty"), ("one sentence\n", ":1: found 1 columns"), ("a\tb\nc\t\n", ":2: found 2 columns"),
    ("a\tb\t5-5\n", ":1: found '5-5'"), ("a\tb\t0-0\tx\n", ":1: found 4 columns")])
def test_a_broken_corpus_is_one_clear_line(tmp_path, tiny_directory, capsys, text, message):
    (tmp_path / "p.tsv").write_text(text)
    assert program.main([str(tmp_path / "p.tsv"), "--out", str(tmp_path / "o"), "--weights", str(tiny_directory)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_file_that_is_there_or_is_being_written_is_left_alone(tmp_path, tiny_directory, capsys):
    (tmp_path / "p.tsv").write_text("the dog ran\tthe hound ran\n")
    command = [str(tmp_path / "p.tsv"), "--out", str(tmp_path / "o"), "--weights", str(tiny_directory), "--no_progress"]
    with open(tmp_path / "o.part", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert program.main(command) == 2
    assert "o.part: another process writes it" in capsys.readouterr().err and not (tmp_path / "o").exists()
    assert program.main(command) == 0
    aligned = (tmp_path / "o").read_text()
    assert program.main(command) == 2
    assert "o: exists already" in capsys.readouterr().err and (tmp_path / "o").read_text() == aligned


def test_read_pairs_keeps_unusual_lines(tmp_path):
    (tmp_path / "p.tsv").write_text('"We won\tHe said "so\n')
    assert read_pairs(tmp_path / "p.tsv")[0].source == ['"', "We", "won"]


# ---- against gold ----------------------------------------------------------------------------------------------------


def test_word_scores_are_macro_means():
    found, gold = [{(0, 0), (1, 1)}, set()], [{(0, 0)}, set()]
    assert word_scores(found, gold) == pytest.approx((0.75, 1.0, 2 * 0.75 / 1.75))
    assert word_scores([set()], [{(0, 0)}])[1] == 0


def test_spans_that_cut_a_chunk_cross_it():
    assert crosses((1, 3), [(0, 2)]) and crosses((0, 2), [(1, 3)])
    assert not crosses((0, 2), [(0, 2)]) and not crosses((0, 4), [(1, 2)]) and not crosses((1, 2), [(0, 4)])


def test_the_evaluation_beats_the_baseline_on_generated_pairs(capsys):
    assert evaluation.main(["phrases", "toy", "--limit", "100"]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[4:]]
    recall = {(row[0], row[1]): float(row[4]) for row in rows}
    assert recall["transport", "bracket"] > recall["identity", "bracket"] + 0.1


def test_word_evaluation_of_a_gold_file(tmp_path, tiny_directory, capsys):
    row = {"source": ["the", "dog"], "target": ["the", "dog"], "sure": [[0, 0], [1, 1]]}
    (tmp_path / "g.jsonl").write_text(json.dumps(row) + "\n")
    assert evaluation.main(["words", str(tmp_path / "g.jsonl"), "--weights", str(tiny_directory)]) == 0
    assert "| identity |  | 1.000 | 1.000 | 1.000 |" in capsys.readouterr().out
    (tmp_path / "g.jsonl").write_text("{}\n")
    assert evaluation.main(["words", str(tmp_path / "g.jsonl")]) == 2
    assert "g.jsonl:1: " in capsys.readouterr().err
