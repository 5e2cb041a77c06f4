"""The cases of shared/cases.json that have no test of their kind elsewhere, one test each."""
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers
import torch
from conftest import ROOT, TINY, case, make_task
from torch.testing import assert_close

import train_multitask
from alignment.corpus import Settings, identity_of, write_corpus
from corpora import toy
from corpora.predictions import load_predictions
from engine.adamw import FastAdamW
from minbert.bert import BertModel
from minbert.weights import export, load_encoder
from tasks import losses
from tasks.encoding import embed
from training.choices import COMBINERS
from training.recipe import load_recipe
from training.surgery import SurgeryState, combine_weights


def test_glue_rows_broken_over_two_lines_are_left_out_and_reported(tmp_path, tiny_tokenizer):
    (tmp_path / "train.tsv").write_text(case("glue-qqp-broken-rows")["input"]["text"])
    dataset = make_task("glue", "qqp", tiny_tokenizer, TINY, {"layout": "qqp"}).read(tmp_path / "train.tsv", "train")
    assert [example.id for example in dataset.examples] == ["1", "3"]
    assert [line for line, _ in dataset.skipped] == [3, 4]
    assert "2 rows left out" in dataset.report() and "lines 3, 4" in dataset.report()


def test_byte_order_marks_in_every_settings_file(tmp_path, tiny_model, tiny_tokenizer):
    assert case("bom-in-settings")["kind"] == "files"
    export(tiny_model, tiny_tokenizer, tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "marked")
    for name in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "modules.json"):
        path = tmp_path / "marked" / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    recipe = (ROOT / "recipes" / "default.toml").read_bytes()
    (tmp_path / "default.toml").write_bytes(b"\xef\xbb\xbf" + recipe)
    assert load_recipe(tmp_path / "default.toml") == load_recipe(ROOT / "recipes" / "default.toml")
    both = [embed(*load_encoder(tmp_path / name)[:2], ["the dog ran"]) for name in ("plain", "marked")]
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize("name", ["sts.v2", "type", "train"])
def test_a_task_name_that_cannot_be_is_one_line(tmp_path, monkeypatch, capsys, tiny_directory, toy_directory, name):
    assert name in json.dumps(case("task-name-dot")["input"])
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(f'[tasks."{name}"]\nkind = "similarity"\ntrain = "sts-train.csv"\ndev = "sts-dev.csv"\n'
                              f'[[stage]]\ntasks = ["{name}"]\nepochs = 1\n')
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--no_progress"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"'{name}'" in error


def test_a_part_of_another_encoder_or_corpus_is_begun_anew(tmp_path, tiny_tokenizer):
    assert "40 lines are B's" in case("align-part-other-encoder")["expected"]["right"]
    rows = toy.rows(toy.aligned_row, 40, 3, "parts")
    lines = [" ".join(row["source"]) + "\t" + " ".join(row["target"]) for row in rows]
    corpus = tmp_path / "pairs.tsv"
    corpus.write_text("\n".join(lines) + "\n")
    encoders = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        encoders.append(BertModel(TINY).eval())
    a, b = encoders

    def interrupted(encoder):
        write_corpus(corpus, tmp_path / "whole.jsonl", encoder, tiny_tokenizer, Settings(), progress=False)
        whole = (tmp_path / "whole.jsonl").read_text().splitlines()
        header = identity_of(corpus, Settings(), encoder, tiny_tokenizer, None)
        (tmp_path / "out.jsonl.part").write_text("\n".join([header, *whole[:20]]) + "\n")

    interrupted(a)
    write_corpus(corpus, tmp_path / "out.jsonl", b, tiny_tokenizer, Settings(), progress=False)
    write_corpus(corpus, tmp_path / "b.jsonl", b, tiny_tokenizer, Settings(), progress=False)
    assert (tmp_path / "out.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()
    interrupted(a)
    lines[0], lines[1] = lines[1], lines[0]
    corpus.write_text("\n".join(lines) + "\n")  # of the same size
    write_corpus(corpus, tmp_path / "out.jsonl", a, tiny_tokenizer, Settings(), progress=False)
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["source"] == lines[0].split("\t")[0].split()


@pytest.mark.parametrize("form", [{"foreach": False}, {"foreach": False, "compile": True}, {"foreach": True}])
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_rate_of_zero_changes_nothing(form, size):
    given = case("adamw-lr-zero")["input"]
    parameter = torch.nn.Parameter(torch.ones(size))
    optimizer = FastAdamW([parameter], lr=given["lr"], weight_decay=given["weight_decay"], **form)
    for _ in range(2):
        parameter.grad = torch.zeros(size)
        optimizer.step()
    assert torch.equal(parameter.detach(), torch.ones(size))


@pytest.mark.parametrize("environment", [{"CXX": "/bin/false"}, {"CXX": "no-such-compiler"}])
def test_a_compiler_that_fails_leaves_slices_and_says_so(tmp_path, environment):
    assert "falls back to slices" in case("compile-noexec-tmp")["expected"]["right"]
    code = "import torch; from engine.adamw import compiles; print(compiles('auto', 1e12, torch.device('cpu')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
                          env={**os.environ, **environment, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert done.stdout.startswith("(False, ") and "AdamW in slices (" in done.stdout


def gradients():
    torch.manual_seed(0)
    base = torch.randn(3, 10, dtype=torch.float64)
    yield base
    yield base * torch.tensor([[1e-6], [1.0], [1e5]], dtype=torch.float64)
    yield torch.stack([base[0], base[0], base[1]])
    yield torch.stack([base[0], -base[0], base[1]])
    yield base[:1] * torch.tensor([[1.0], [2.0], [-0.5]], dtype=torch.float64)
    yield torch.randn(8, 5, dtype=torch.float64)
    yield 1e-18 * torch.randn(3, 6, dtype=torch.float64)


@pytest.mark.parametrize("rows", gradients())
@pytest.mark.parametrize("method", COMBINERS)
def test_weights_are_finite_for_every_kind_of_gradients(rows, method):
    assert "all weights finite" in case("surgery-against-torchjd")["expected"]["right"]
    names = [str(number) for number in range(len(rows))]
    weights = combine_weights(method, rows @ rows.T, names, torch.Generator().manual_seed(0), SurgeryState())
    assert weights.isfinite().all()


def test_imtl_g_has_one_projection_onto_every_unit_gradient_and_weights_that_sum_to_one():
    torch.manual_seed(0)
    rows = torch.randn(3, 10, dtype=torch.float64)
    weights = combine_weights("imtl_g", rows @ rows.T, ["a", "b", "c"], torch.Generator(), SurgeryState())
    units = rows / rows.norm(dim=1, keepdim=True)
    projections = units @ (weights @ rows)
    assert_close(projections, projections.mean().expand(3))
    assert weights.sum().item() == pytest.approx(1)


def test_aligned_mtl_is_its_algorithm():
    """Senushkin et al. 2023, algorithm 1, on the gradients themselves, by their singular values."""
    torch.manual_seed(0)
    rows = torch.randn(3, 10, dtype=torch.float64)
    weights = combine_weights("aligned", rows @ rows.T, ["a", "b", "c"], torch.Generator(), SurgeryState())
    u, s, vh = torch.linalg.svd(rows, full_matrices=False)
    balanced = s.min() * u @ vh  # all singular values equal to the smallest
    direction, expected = weights @ rows, balanced.sum(dim=0)
    cosine = torch.nn.functional.cosine_similarity(direction, expected, dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-9)


def test_vectors_do_not_depend_on_the_batch(model_directory):
    assert "batches" in case("embed-batch-invariance")["input"]
    encoder, tokenizer, _ = load_encoder(model_directory)
    rng = np.random.default_rng(0)
    words = ["dog", "runs", "far", "unaffable", "music", "the", "?"]
    texts = [" ".join(rng.choice(words, rng.integers(1, 60))) for _ in range(60)]
    together, alone = embed(encoder, tokenizer, texts), embed(encoder, tokenizer, texts, tokens_per_batch=1)
    assert np.abs(together - alone).max() <= 1e-5


def test_one_hard_pair():
    given, expected = case("loss-one-hard-pair")["input"], case("loss-one-hard-pair")["expected"]
    scores = torch.tensor(given["scores"], requires_grad=True)
    loss = losses.ranking_hinge(scores, torch.tensor(given["labels"]), given["margin"])
    loss.backward()
    assert loss.item() == pytest.approx(expected["loss"]) and scores.grad.tolist() == expected["gradient"]
    assert losses.ranking_hinge(scores[:1], torch.tensor([1]), given["margin"]).item() == expected["single_row"]


def test_a_gigantic_rate_stops_soon_and_leaves_no_result(tmp_path, monkeypatch, capsys, tiny_directory, toy_directory):
    assert "exit 2" in case("lr-gigantic")["expected"]["right"]
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text('[[stage]]\ntasks = ["sst"]\nwarmup = 0.0\n'
                              'optimizer = { lr = 1e30, head_lr = 1e30 }\n')
    arguments = ["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory), "--no_progress",
                 "--out", "run", "--epochs", "3"]
    assert train_multitask.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "not finite" in error
    assert not Path("run/results.json").exists() and not Path("run/model.safetensors").exists()


RECIPE = """
precision = "float32"
hidden_dropout_prob = 0.0
encoder_dropout = 0.0
[tasks.para]
loss = "info_nce"
head = "cosine"
[tasks.sts]
loss = "cosent"
pooling = "attentive"
[[stage]]
tasks = ["sst", "para", "sts"]
epochs = 1
steps_per_epoch = 6
keep = "last"
combine = "pcgrad"
batch_size = { sst = 3, para = 4, sts = 1 }
optimizer = { lr = 1e-4, eps = 1e-2 }
"""


@pytest.mark.slow
def test_three_uneven_processes_train_as_one(tmp_path, tiny_directory, toy_directory):
    assert "no hang" in case("distributed-uneven")["expected"]["right"]
    (tmp_path / "r.toml").write_text(RECIPE)
    losses_of = {}
    for processes, launcher in ((1, []), (3, ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=3"])):
        subprocess.run([sys.executable, *launcher, str(ROOT / "train_multitask.py"), "--no_progress", "--recipe",
                        "r.toml", "--train_size", "7", "--weights", str(tiny_directory), "--data", str(toy_directory),
                        "--out", f"run-{processes}"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
        losses_of[processes] = [json.loads(line)["loss"] for line in
                                (tmp_path / f"run-{processes}" / "metrics.jsonl").read_text().splitlines()
                                if '"loss"' in line]
    for one, three in zip(losses_of[1], losses_of[3], strict=True):
        assert one == pytest.approx(three, abs=1e-4)
    assert len(losses_of[1]) == 6 and not any(math.isnan(value) for loss in losses_of[1] for value in loss.values())


@pytest.mark.parametrize(("pooling", "max_length"), [("cls", 128), ("mean", 12), ("max", 12), ("pooler", 12)])
def test_the_exported_folder_gives_the_runs_own_predictions(tmp_path, monkeypatch, tiny_directory, toy_directory,
                                                            pooling, max_length):
    """In sentence-transformers and by `embed`, for every pooling and above the length that the run was trained with."""
    assert "equal the run's predictions / 5 to 1e-5" in json.dumps(case("export-pooling")["expected"])
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(f'max_length = {max_length}\n[tasks.sts]\npooling = "{pooling}"\nhead = "cosine"\n'
                              '[[stage]]\ntasks = ["sts"]\nepochs = 1\nsteps_per_epoch = 5\n')
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--out", "run", "--no_progress"]) == 0
    predictions = np.array([row.prediction for row in load_predictions(Path("run/predictions/sts-dev.jsonl"))])
    rows = [line.split("\t") for line in (toy_directory / "sts-dev.csv").read_text().splitlines()[1:]]
    pairs = [[row[column].strip('"') for row in rows] for column in (2, 3)]
    peer = sentence_transformers.SentenceTransformer("run/encoder", device="cpu")
    encoder, tokenizer, _ = load_encoder(Path("run/encoder"))
    for encode in (peer.encode, lambda texts: embed(encoder, tokenizer, texts)):
        u, v = (np.asarray(encode(side)) for side in pairs)
        cosines = (u * v).sum(axis=1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
        np.testing.assert_allclose(cosines.clip(0, 1), predictions / 5, atol=1e-5)


# Where the other cases are tested: file and test.
ELSEWHERE = {
    "tok-strip-accents-off": "test_tokenizer.py test_accents_stay_where_the_folder_says_so",
    "export-max-length": "test_weights.py test_the_default_model_is_cut_where_sentence_transformers_cuts",
    "metric-two-constants": "test_runs.py test_a_correlation_with_a_constant_is_zero",
    "resume-other-data": "test_runs.py test_other_data_under_the_same_name_are_refused",
    "no-home": "test_runs.py test_no_home_directory",
    "disk-full-message": "test_runs.py test_a_full_disk_is_one_line_and_status_2",
    "adamw-compiled-overflow": "test_optimizer.py test_every_form_survives_any_finite_gradient",
    "embed-bare-string": "test_embedding.py test_one_string_and_items_that_are_none_are_errors",
    "prediction-file-door": "test_tasks.py test_a_broken_prediction_file_is_a_clear_error",
    "sts-label-forms": "test_tables.py test_numbers_are_plain_decimal_digits",
    "weights-half-missing": "test_weights.py test_a_missing_or_misspelt_parameter_is_an_error",
    "surgery-never": "test_recipe.py test_a_mistake_is_one_clear_error",
    "sts-range": "test_tasks.py test_predictions_stay_in_the_tasks_range",
    "margin-unreachable": "test_tasks.py test_a_wrong_choice_is_a_clear_error",
    "json-nan": "test_runs.py test_a_model_that_has_diverged_is_not_a_result",
    "bars-in-files": "test_runs.py test_progress_in_a_file_is_lines_and_no_carriage_returns",
    "run-identity": "test_runs.py test_results_say_what_computed_them",
    "lfs-pointer": "test_weights.py test_files_that_are_something_else_are_named",
    "vocab-too-small": "test_weights.py test_a_vocabulary_smaller_than_the_table_is_said",
    "tokenizer-json-ids": "test_tokenizer.py test_ids_with_a_hole_keep_their_numbers",
    "tft-stale-corpus": "test_runs.py test_a_corpus_that_another_command_left_is_not_used",
    "diverged": "test_runs.py test_a_model_that_has_diverged_is_not_a_result",
    "align-orphans": "test_runs.py test_no_worker_of_the_aligner_lives_on",
    "two-runs-one-folder": "test_runs.py test_a_second_process_is_refused_by_the_first_ones_number",
    "evaluate-overwrites": "test_runs.py test_an_evaluation_uses_the_runs_data_and_writes_beside",
    "task-name-path": "test_recipe.py test_a_mistake_is_one_clear_error",
    "tft-negatives-by-text": "test_phrases.py test_a_target_that_says_the_same_is_no_negative",
}


def test_every_case_has_a_test():
    """By the kind that `cases` collects, in this file, or where ELSEWHERE says."""
    path = ROOT.parent / "shared" / "cases.json"
    if not path.exists():
        pytest.skip("no cases.json beside the project")
    texts = {file.name: file.read_text("utf-8") for file in (ROOT / "tests").glob("*.py")}
    for found in json.loads(path.read_text("utf-8")):
        file, _, name = ELSEWHERE.get(found["id"], "").partition(" ")
        by_kind = "bug_log" in found and any(f'cases("{found["kind"]}")' in text for text in texts.values())
        here = f'case("{found["id"]}")' in texts["test_cases.py"]
        assert by_kind or here or (file and f"def {name}(" in texts[file]), found["id"]
