"""Knowledge distillation: a finished run's answers are labels of another's training examples."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY

import train_multitask
from corpora.predictions import load_predictions
from tasks.options import ParaphraseOptions, SentimentOptions, SimilarityOptions
from tasks.registry import make_task
from tasks.task import Batch, Outputs
from training import teacher
from training.engines import make_engine

RECIPE = """
about = "a student"
[tasks.sst]
train = ["ids-sst-dev.csv"]
teacher = "{teacher}"
[tasks.phrases]
model_of = "sst"
train = ["ids-sst-train.csv"]
[tasks.para]
train = ["quora-dev.csv"]
teacher = "{teacher}"
teacher_weight = 0.75
[tasks.sts]
train = ["sts-dev.csv"]
teacher = "{teacher}"
[[stage]]
tasks = ["sst", "phrases", "para", "sts"]
epochs = 1
steps_per_epoch = 3
batch_size = 4
"""


@pytest.fixture(scope="module")
def taught(tmp_path_factory, tiny_directory, toy_directory):
    """A finished run: it will be the teacher."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    status = train_multitask.main(["--weights", str(tiny_directory), "--data", str(toy_directory), "--out",
                                   str(folder), "--epochs", "1", "--steps_per_epoch", "4", "--no_progress"])
    assert status == 0
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, taught, tiny_directory, toy_directory):
    """Where a student runs, with a cache of its own. Returns the flags of its run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(teacher, "cache_directory", lambda: tmp_path / "cache")
    Path("student.toml").write_text(RECIPE.format(teacher=taught))
    return ["--recipe", "student.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
            "--no_progress", "--precision", "float32"]


def taught_examples(monkeypatch, flags):
    """Run a student, and return its data."""
    known = {}

    def look(tasks, recipe, data, *rest):
        known.update(data)
        return real(tasks, recipe, data, *rest)

    real = teacher.teach
    monkeypatch.setattr("training.program.teach", look)
    assert train_multitask.main([*flags, "--out", "run"]) == 0
    return known


def test_the_answers_are_those_of_the_teachers_own_predictions(place, monkeypatch, taught):
    data = taught_examples(monkeypatch, place)
    for task in ("sst", "para", "sts"):
        own = {row.id: row for row in load_predictions(taught / "predictions" / f"{task}-dev.jsonl")}
        assert len(data[task].train) == len(own) > 10
        for example in data[task].train:
            expected = [own[example.id].prediction] if task == "sts" else own[example.id].probabilities
            np.testing.assert_allclose(example.answer, expected, atol=2e-6)
    assert all(len(example.answer) == 5 for example in data["phrases"].train)  # by the task whose data they are
    assert all(len(example.answer) == 0 for example in data["sst"].dev)


def test_a_student_learns_and_is_as_reproducible_as_any_run(place, capsys):
    assert train_multitask.main([*place, "--out", "one"]) == 0
    assert train_multitask.main([*place, "--out", "two"]) == 0
    assert Path("one/model.safetensors").read_bytes() == Path("two/model.safetensors").read_bytes()
    said = capsys.readouterr().out
    assert "is the teacher" in said and said.count("examples of task sst answered") == 2  # of sst and of phrases, once


def test_answers_that_were_given_are_not_computed_again(place, monkeypatch, tmp_path, toy_directory):
    monkeypatch.setattr(teacher, "CHUNK", 10)
    assert train_multitask.main([*place, "--out", "one"]) == 0
    kept = sorted(Path("cache/answers").rglob("*.npz"))
    assert len(list(Path("cache/answers").iterdir())) == 3  # sst and phrases have one teacher's task
    kept[3].unlink()
    calls = []
    real = teacher.answers
    monkeypatch.setattr(teacher, "answers", lambda task, encoder, examples, *rest: (
        calls.append(len(examples)), real(task, encoder, examples, *rest))[1])
    assert train_multitask.main([*place, "--out", "two"]) == 0
    assert len(calls) == 1 and calls[0] <= 10 and sorted(Path("cache/answers").rglob("*.npz")) == kept
    assert Path("one/model.safetensors").read_bytes() == Path("two/model.safetensors").read_bytes()
    # Fewer examples, in another order: all of them are known.
    shutil.copytree(toy_directory, "fewer")
    header, *lines = Path("fewer/quora-dev.csv").read_text().splitlines()
    Path("fewer/quora-dev.csv").write_text("\n".join([header, *reversed(lines[5:])]) + "\n")
    place[place.index("--data") + 1] = "fewer"
    assert train_multitask.main([*place, "--out", "three"]) == 0 and len(calls) == 1


def damaged(path, content):
    """Write bytes, or arrays of the wrong kind."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez(path, **content)


@pytest.mark.parametrize("content", [
    b"", b"x" * 300, b"PK\x03\x04cut off", {"values": np.zeros((2, 5), np.float32)},
    {"digests": np.zeros((3, 32), np.uint8), "values": np.zeros((2, 5), np.float32)},
    {"digests": np.zeros((2, 32), np.uint8), "values": np.zeros((2, 5), np.int64)},
    {"digests": np.array([{}], dtype=object), "values": np.zeros((1, 5), np.float32)}])
def test_a_damaged_answer_is_one_line(place, capsys, content):
    assert train_multitask.main([*place, "--out", "one"]) == 0
    path = min(Path("cache/answers").rglob("*.npz"))
    damaged(path, content)
    assert train_multitask.main([*place, "--out", "two"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and path.name in error and "delete it, and the teacher answers again" in error


def test_a_dry_run_checks_the_teachers_and_asks_them_nothing(place, capsys):
    assert train_multitask.main([*place, "--dry_run"]) == 0
    assert not Path("cache/answers").exists() and "is the teacher" in capsys.readouterr().out
    Path("student.toml").write_text(RECIPE.format(teacher="nowhere"))
    assert train_multitask.main([*place, "--dry_run"]) == 2
    assert "teacher nowhere: has no results.json" in capsys.readouterr().err


def test_the_teacher_answers_at_the_students_precision(place):
    assert train_multitask.main([*place, "--out", "one"]) == 0
    exact = set(Path("cache/answers").rglob("*.npz"))
    assert train_multitask.main([*place, "--precision", "bfloat16", "--out", "two"]) == 0
    coarse = set(Path("cache/answers").rglob("*.npz")) - exact
    assert len(coarse) == len(exact) == 4
    values = {path: np.load(path)["values"] for path in (*coarse, *exact)}
    closest = [min(np.abs(values[one] - values[other]).max() for other in exact
                   if values[one].shape == values[other].shape) for one in coarse]
    assert 0 < max(closest) < 0.05


def test_another_teacher_is_another_run(place, capsys, tmp_path, taught):
    shutil.copytree(taught, tmp_path / "copy")
    Path("student.toml").write_text(RECIPE.format(teacher=tmp_path / "copy"))
    assert train_multitask.main([*place, "--out", "run"]) == 0
    Path("run/results.json").unlink()
    tensors = bytearray((tmp_path / "copy" / "model.safetensors").read_bytes())
    tensors[-1] ^= 1
    (tmp_path / "copy" / "model.safetensors").write_bytes(tensors)
    assert train_multitask.main([*place, "--out", "run"]) == 2
    assert "holds a run with other teachers" in capsys.readouterr().err


@pytest.mark.parametrize(("change", "message"), [
    (lambda folder: (folder / "results.json").unlink(), "has no results.json; expected the folder of a finished run"),
    (lambda folder: shutil.rmtree(folder), "has no results.json"),
    (lambda folder: shutil.rmtree(folder / "encoder"), "has no encoder"),
    (lambda folder: (folder / "recipe.toml").write_text("["), "recipe.toml"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "model.safetensors")])
def test_a_teacher_that_cannot_teach_is_one_line(place, capsys, tmp_path, taught, change, message):
    shutil.copytree(taught, tmp_path / "copy")
    change(tmp_path / "copy")
    Path("student.toml").write_text(RECIPE.format(teacher=tmp_path / "copy"))
    assert train_multitask.main([*place, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(tmp_path / "copy") in error and message in error


def test_a_teacher_of_other_tasks_is_one_line(place, capsys, tiny_directory, toy_directory):
    assert train_multitask.main(["--weights", str(tiny_directory), "--data", str(toy_directory), "--out", "narrow",
                                 "--tasks", "sst", "--epochs", "1", "--steps_per_epoch", "1", "--no_progress"]) == 0
    Path("student.toml").write_text(RECIPE.format(teacher="narrow"))
    assert train_multitask.main([*place, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error == "error: teacher narrow: has no task 'para' of kind 'paraphrase'; its tasks: sst\n"


def test_a_teacher_with_other_classes_is_one_line(taught, tiny_tokenizer):
    recipe, model = teacher.load_teacher(taught, make_engine("engine"))
    student = make_task("sentiment", "sst", tiny_tokenizer, TINY, SentimentOptions(classes=3).filled())
    with pytest.raises(ValueError, match="its task 'sst' has 5 classes; expected 3"):
        teacher.teacher_task(student, recipe.tasks["sst"], taught, recipe, model)


@pytest.mark.parametrize(("options", "message"), [
    (lambda: SentimentOptions(teacher="x", head="nearest"), "needs a loss against answers"),
    (lambda: ParaphraseOptions(teacher="x", loss="hinge"), "needs a loss against answers"),
    (lambda: SimilarityOptions(teacher="x", loss="cosent"), "needs a loss against answers"),
    (lambda: SentimentOptions(teacher="x", teacher_weight=0.0), "teacher_weight is 0.0; expected above 0, at most 1"),
    (lambda: SentimentOptions(teacher="x", teacher_weight=float("nan")), "teacher_weight is nan"),
    (lambda: SentimentOptions(teacher_weight=0.7), "no effect without a teacher")])
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        options()


# ---- the loss, against its formula in float64 ------------------------------------------------------------------------


def criterion(tokenizer, kind, options, values, labels, answers):
    task = make_task(kind, kind, tokenizer, TINY, options.filled())
    batch = Batch(None, labels, torch.arange(len(values)), answers)
    return float(task.training_loss(Outputs(values, torch.tensor(0.25)), batch))


def test_the_loss_of_classes_is_the_mean_of_two_cross_entropies(tiny_tokenizer):
    rng = np.random.default_rng(0)
    for kind, options, classes in (("sentiment", SentimentOptions(teacher="x", teacher_weight=0.3), 5),
                                   ("paraphrase", ParaphraseOptions(teacher="x", teacher_weight=0.3), 2)):
        logits, wanted = rng.normal(size=(6, classes)), rng.dirichlet(np.ones(classes), 6)
        labels = rng.integers(0, classes, 6)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        expected = (0.7 * -log_p[np.arange(6), labels].mean() + 0.3 * -(wanted * log_p).sum(1).mean() + 0.25)
        found = criterion(tiny_tokenizer, kind, options, *(torch.tensor(part) for part in (logits, labels, wanted)))
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("loss", "distance"), [("mse", np.square), ("l1", np.abs)])
def test_the_loss_of_scores_is_the_mean_of_two_distances(tiny_tokenizer, loss, distance):
    rng = np.random.default_rng(1)
    cosines, labels, wanted = rng.uniform(-1, 1, 6), rng.uniform(0, 5, 6), rng.uniform(0, 5, 6)
    expected = 0.7 * distance(cosines - labels / 5).mean() + 0.3 * distance(cosines - wanted / 5).mean() + 0.25
    found = criterion(tiny_tokenizer, "similarity", SimilarityOptions(loss=loss, teacher="x", teacher_weight=0.3),
                      *(torch.tensor(part) for part in (cosines, labels, wanted)))
    assert found == pytest.approx(expected, rel=1e-9)


def test_without_a_teacher_the_loss_is_that_of_the_labels(tiny_tokenizer):
    logits, labels = torch.randn(4, 5, dtype=torch.float64), torch.tensor([0, 4, 2, 1])
    found = criterion(tiny_tokenizer, "sentiment", SentimentOptions(), logits, labels, None)
    assert found == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)) + 0.25, rel=1e-12)


def test_reading_a_teacher_changes_no_later_draw(taught):
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    teacher.load_teacher(taught, make_engine("engine"))
    assert torch.equal(torch.randn(4), expected)


def test_the_report_of_a_student_names_its_teacher(place):
    assert train_multitask.main([*place, "--out", "run"]) == 0
    assert "teachers" in json.loads(Path("run/results.json").read_text())["identity"]


UNLABELLED = RECIPE.replace('train = ["ids-sst-train.csv"]\n', 'train = ["texts.csv"]\nunlabelled = true\n')


@pytest.fixture
def texts(place, toy_directory, tmp_path, taught):
    """A folder of data with sentences that have no label."""
    shutil.copytree(toy_directory, "data")
    lines = [line.split("\t") for line in Path("data/ids-sst-train.csv").read_text().splitlines()]
    Path("data/texts.csv").write_text("".join("\t".join(fields[:3]) + "\n" for fields in lines))
    Path("student.toml").write_text(UNLABELLED.format(teacher=taught))
    place[place.index("--data") + 1] = "data"
    return place


def test_sentences_without_labels_teach_by_the_answers_alone(texts, monkeypatch, taught):
    data = taught_examples(monkeypatch, texts)
    assert all(example.label is None and len(example.answer) == 5 for example in data["phrases"].train)
    results = json.loads(Path("run/results.json").read_text())
    assert "phrases" not in results["train"] and results["examples_seen"]["phrases"] == 12
    assert train_multitask.main([*texts, "--dry_run"]) == 0


def test_without_labels_the_loss_is_that_of_the_answers(tiny_tokenizer):
    logits, answers = torch.randn(4, 5, dtype=torch.float64), torch.rand(4, 5, dtype=torch.float64).softmax(1)
    options = SentimentOptions(teacher="x", teacher_weight=0.3)
    found = criterion(tiny_tokenizer, "sentiment", options, logits, None, answers)
    expected = -(answers * logits.log_softmax(1)).sum(1).mean()
    assert found == pytest.approx(float(expected) + 0.25, rel=1e-12)


@pytest.mark.parametrize(("change", "message"), [
    (lambda text: text.replace('model_of = "sst"\n', 'kind = "sentiment"\ndev = ["ids-sst-dev.csv"]\n'),
     "unlabelled: is for further"),
    (lambda text: text.replace('teacher = "{teacher}"\n[tasks.phrases]', "[tasks.phrases]"),
     "unlabelled: is for further"),
    (lambda text: text + 'balanced = ["phrases"]\n', "balanced names task 'phrases', whose classes are not known")])
def test_unlabelled_data_need_a_teacher(texts, capsys, taught, change, message):
    Path("student.toml").write_text(change(UNLABELLED).format(teacher=taught))
    assert train_multitask.main([*texts, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error
