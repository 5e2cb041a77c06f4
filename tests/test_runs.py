"""A run's folder: one process, one identity, nothing overwritten; and how a run ends when it is stopped or diverges."""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT, case

import pretrain_tft
import train_multitask
from corpora import toy
from corpora.files import write_json
from corpora.predictions import load_predictions
from corpora.processes import ctrl_c_later
from tasks.metrics import pearson
from training import checkpoint
from training.commandline import printable
from training.progress import Progress
from training.runs import check_identity, only_process

FAST = ["--no_progress", "--epochs", "1", "--batch_size", "8", "--steps_per_epoch", "2"]


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.lock"}


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_directory, toy_directory):
    """An empty working directory with a copy of the data, and a function that runs the program there."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(toy_directory, tmp_path / "course")

    def run(*flags, data="course"):
        return train_multitask.main(["--weights", str(tiny_directory), *(["--data", data] if data else []), *FAST,
                                     *map(str, flags)])
    return run


def error_of(capsys) -> str:
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error


# ---- what a run was is what it resumes -------------------------------------------------------------------------------


def test_a_finished_run_says_so_and_changes_nothing(place, capsys):
    assert place("--out", "run") == 0
    before = hashes(Path("run"))
    assert place("--out", "run") == 0
    assert "this run is finished" in capsys.readouterr().out and hashes(Path("run")) == before


@pytest.mark.parametrize("file", ["sts-train.csv", "ids-sst-dev.csv", "quora-test-student.csv"])
def test_other_data_under_the_same_name_are_refused(place, capsys, file):
    assert place("--out", "run") == 0
    Path("run/results.json").unlink()  # as if it had been killed before
    path = Path("course") / file
    path.write_text("\n".join(path.read_text().split("\n")[:-3]) + "\n")
    before = hashes(Path("run"))
    assert place("--out", "run") == 2
    error = error_of(capsys)
    assert "holds a run with other data" in error and file in error and hashes(Path("run")) == before


def test_other_weights_under_the_same_name_are_refused(place, capsys, tmp_path, tiny_directory):
    shutil.copytree(tiny_directory, "encoder")
    arguments = ["--weights", "encoder", "--data", "course", *FAST, "--out", "run"]
    assert train_multitask.main(arguments) == 0
    Path("run/results.json").unlink()
    lines = Path("encoder/vocab.txt").read_text().split("\n")
    lines[-2], lines[-3] = lines[-3], lines[-2]
    Path("encoder/vocab.txt").write_text("\n".join(lines))
    Path("encoder/tokenizer.json").unlink()
    assert train_multitask.main(arguments) == 2
    assert "holds a run with other weights" in error_of(capsys)


def test_an_identity_names_its_first_difference(tmp_path):
    check_identity(tmp_path, {"data": {"a": "1", "b": "2"}})
    check_identity(tmp_path, {"data": {"a": "1", "b": "2"}})
    for other, named in (({"a": "1", "b": "3"}, "b"), ({"a": "1"}, "b"), ({"a": "1", "b": "2", "c": "3"}, "c")):
        with pytest.raises(ValueError, match=f"with other data: {named} has changed"):
            check_identity(tmp_path, {"data": other})
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(ValueError, match=r"identity.json: damaged"):
        check_identity(tmp_path, {"data": {}})


def test_results_say_what_computed_them(place):
    assert place("--out", "run") == 0
    results = json.loads(Path("run/results.json").read_text())
    assert results["versions"]["torch"].startswith(torch.__version__.split("+")[0]) and "commit" in results
    name = next(name for name in results["identity"]["data"] if name.endswith("sts-train.csv"))
    assert results["identity"]["data"][name] == hashlib.sha256(Path("course/sts-train.csv").read_bytes()).hexdigest()
    assert "model.safetensors" in results["identity"]["weights"]
    assert results["examples_seen"] == {"sst": 16, "para": 16, "sts": 16} and results["precision"]


def test_a_corpus_that_another_command_left_is_not_used(tmp_path, monkeypatch, tiny_directory, toy_directory, capsys):
    """As if a run had died between the corpus and its recipe: the next command aligns its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        rows = [json.loads(line) for line in (toy_directory / "train.jsonl").read_text().splitlines()]
        rows = rows[:30] if name == "a" else rows[10:40]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ["--weights", str(tiny_directory), "--epochs", "1", "--steps_per_epoch", "1", "--batch_size", "4",
              "--no_progress", "--out", "run"]
    assert pretrain_tft.main(["--corpus", "a.jsonl", *common]) == 0
    for name in ("recipe.toml", "results.json", "identity.json", "state.json", "metrics.jsonl"):
        Path("run", name).unlink()
    assert pretrain_tft.main(["--corpus", "b.jsonl", *common]) == 0
    used = {line for split in ("train", "dev", "test")
            for line in Path(f"run/corpus/{split}.jsonl").read_text().splitlines()}
    sources = {json.dumps(json.loads(line)["source"]) for line in used}
    assert sources == {json.dumps(json.loads(line)["source"]) for line in Path("b.jsonl").read_text().splitlines()}


# ---- a run's own results ---------------------------------------------------------------------------------------------


def test_an_evaluation_uses_the_runs_data_and_writes_beside(place, capsys):
    assert place("--out", "run", "--limit", 20) == 0
    printed = capsys.readouterr().out.split("final, dev")[1].split("final, train")[0]
    before = hashes(Path("run"))
    evaluate = ["--option", "evaluate", "--checkpoint", "run", "--no_progress"]
    assert train_multitask.main(evaluate) == 0
    assert printed in capsys.readouterr().out  # the recorded data, with the recorded limit
    assert train_multitask.main([*evaluate, "--limit", "10"]) == 0
    assert train_multitask.main([*evaluate, "--data", "course"]) == 0
    assert "GENERATED" not in capsys.readouterr().out
    assert sorted(path.name for path in Path("run/evaluations").iterdir()) == ["1", "2", "3"]
    assert {name: value for name, value in hashes(Path("run")).items() if not name.startswith("evaluations")} == before
    assert train_multitask.main([*evaluate, "--out", "run"]) == 2
    assert "holds a run; an evaluation never overwrites" in error_of(capsys)
    shutil.rmtree("course")
    assert train_multitask.main(evaluate) == 2
    assert "expected the run's data" in error_of(capsys)


def test_the_shared_folder_is_one_runs_and_says_whose(place):
    assert place() == 0
    manifest = json.loads(Path("predictions/manifest.json").read_text())
    assert manifest["run"].endswith("runs/default") and len(manifest["files"]) == 6
    for name, value in manifest["files"].items():
        assert hashlib.sha256(Path(name).read_bytes()).hexdigest() == value
    assert place("--tasks", "sst", "--seed", 3) == 0
    assert sorted(path.name for path in Path("predictions").iterdir()) == [
        "manifest.json", "sst-dev-output.csv", "sst-test-output.csv"]
    assert json.loads(Path("predictions/manifest.json").read_text())["run"].endswith("runs/default-2")


def test_a_link_in_the_run_folder_is_not_followed(place, capsys, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "predictions").symlink_to(tmp_path / "outside")
    assert place("--out", "run") == 2
    assert "is a link" in error_of(capsys) and not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("name", ["model.safetensors", "results.json", "predictions", "encoder", "recipe.toml"])
def test_a_folder_that_is_no_run_folder_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(ValueError, match=f"a run would overwrite its {name}; choose another --out"), \
            only_process(tmp_path):
        pass
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "precious")]


def test_leftovers_of_a_killed_save_are_removed(place):
    Path("run/encoder").mkdir(parents=True)
    for name in ("run/.model.safetensors.99.part", "run/encoder/.config.json.7.part", "run/run.lock"):
        Path(name).write_text("half")
    assert place("--out", "run") == 0
    assert not list(Path("run").rglob(".*.part"))


# ---- one process, one folder -----------------------------------------------------------------------------------------


def test_a_second_process_is_refused_by_the_first_ones_number(tmp_path):
    code = ("import sys, time; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
            "from training.runs import only_process\n"
            "with only_process(Path(sys.argv[2])):\n    print('held', flush=True); time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", code, str(ROOT), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=f"process {holder.pid} is running there"), only_process(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
    with only_process(tmp_path):  # a lock ends with its process
        assert (tmp_path / "run.lock").read_text() == str(os.getpid())


@pytest.mark.parametrize("damage", ["a flipped bit", "cut short", "another file", "no checksum", "a path", "a version"])
def test_a_damaged_state_is_refused(tmp_path, damage):
    checkpoint.save_state(tmp_path, {"a": torch.ones(200)}, {"stage": 0, "step": 1})
    tensors, state = next(tmp_path.glob("*.safetensors")), tmp_path / "state.json"
    content, values = bytearray(tensors.read_bytes()), json.loads(state.read_text())
    if damage == "a flipped bit":
        content[-5] ^= 1
    elif damage == "cut short":
        content = content[:-10]
    tensors.write_bytes(content)
    if damage == "another file":
        tensors.unlink()
    elif damage == "no checksum":
        write_json(state, {name: value for name, value in values.items() if name != "sha256"})
    elif damage == "a path":
        write_json(state, {**values, "tensors": "../" + values["tensors"]})
    elif damage == "a version":
        state.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="delete the folder to start anew"):
        checkpoint.load_state(tmp_path)


def hear_interrupts():
    """Undo what a shell does to the commands that it starts in the background: they ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(program, *flags):
    return [sys.executable, str(ROOT / program), *map(str, flags)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_truly_from_where_the_run_resumes(tmp_path, tiny_directory, toy_directory, number):
    arguments = command("train_multitask.py", "--weights", tiny_directory, "--data", toy_directory, "--out", "run",
                        "--epochs", 500, "--steps_per_epoch", 50, "--precision", "float32", "--no_progress")
    process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=hear_interrupts)
    log = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and (not log.exists() or log.stat().st_size < 2000):
        time.sleep(0.05)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and error.count("\n") == 1
    step = json.loads((tmp_path / "run" / "state.json").read_text())["step"]
    assert f"the same command resumes run at stage 1, step {step:,}" in error
    assert len([line for line in log.read_text().splitlines() if '"loss"' in line]) == step


@pytest.mark.slow
def test_kills_at_random_moments_end_with_the_same_bits(tmp_path, tiny_directory, toy_directory):
    """SIGKILL over both programs, also inside saves: after the last start the parameters are a straight run's."""
    rng = random.Random(0)
    programs = {
        "train_multitask.py": ["--weights", tiny_directory, "--data", toy_directory, "--epochs", 6,
                               "--steps_per_epoch", 6, "--precision", "float32", "--no_progress"],
        "pretrain_tft.py": ["--weights", tiny_directory, "--corpus", toy_directory / "train.jsonl", "--epochs", 6,
                            "--steps_per_epoch", 6, "--batch_size", 8, "--precision", "float32", "--no_progress"]}
    for program, flags in programs.items():
        straight, killed = tmp_path / f"{program}-straight", tmp_path / f"{program}-killed"
        started = time.monotonic()
        subprocess.run(command(program, *flags, "--out", straight), cwd=tmp_path, check=True, capture_output=True)
        whole = time.monotonic() - started
        kills = 0
        while kills < 3:  # a process that had ended before the signal does not count
            process = subprocess.Popen(command(program, *flags, "--out", killed), cwd=tmp_path,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(rng.uniform(0.3, 1.0) * whole)
            process.kill()
            process.communicate()
            kills += process.returncode == -signal.SIGKILL
            if (killed / "results.json").exists():
                shutil.rmtree(killed)  # it finished: begin again
        subprocess.run(command(program, *flags, "--out", killed), cwd=tmp_path, check=True, capture_output=True)
        assert (killed / "model.safetensors").read_bytes() == (straight / "model.safetensors").read_bytes()
        assert (killed / "metrics.jsonl").read_text() == (straight / "metrics.jsonl").read_text()
    pairs = "".join(" ".join(row["source"]) + "\t" + " ".join(row["target"]) + "\n" for row in toy.rows(
        toy.aligned_row, 1500, 3, "kills"))
    (tmp_path / "pairs.tsv").write_text(pairs)
    align = [sys.executable, "-m", "alignment", str(tmp_path / "pairs.tsv"), "--weights", str(tiny_directory),
             "--workers", "2", "--no_progress", "--out"]
    started = time.monotonic()
    subprocess.run([*align, str(tmp_path / "straight.jsonl")], cwd=ROOT, check=True, capture_output=True)
    whole = time.monotonic() - started
    kills = 0
    while kills < 1:
        process = subprocess.Popen([*align, str(tmp_path / "killed.jsonl")], cwd=ROOT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.4, 1.0) * whole)
        process.kill()
        process.wait()
        kills += process.returncode == -signal.SIGKILL
        (tmp_path / "killed.jsonl").unlink(missing_ok=True)
    subprocess.run([*align, str(tmp_path / "killed.jsonl")], cwd=ROOT, check=True, capture_output=True)
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "straight.jsonl").read_bytes()


def children_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_of_the_aligner_lives_on(tmp_path, tiny_directory, number):
    (tmp_path / "pairs.tsv").write_text("".join(" ".join(row["source"]) + "\t" + " ".join(row["target"]) + "\n"
                                                for row in toy.rows(toy.aligned_row, 6000, 3, "orphans")))
    process = subprocess.Popen([sys.executable, "-m", "alignment", str(tmp_path / "pairs.tsv"), "--out",
                                str(tmp_path / "out.jsonl"), "--weights", str(tiny_directory), "--workers", "2",
                                "--no_progress"], cwd=ROOT, text=True, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, preexec_fn=hear_interrupts)
    workers: list[int] = []
    while process.poll() is None and len(workers) < 2:
        time.sleep(0.02)
        workers = children_of(process.pid)
    assert len(workers) == 2
    process.send_signal(number)
    error = process.communicate(timeout=30)[1]
    if number == signal.SIGINT:
        assert error.count("\n") == 1 and error.startswith("interrupted; the same command continues"), error
    ended = time.monotonic() + 5
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < ended:
        time.sleep(0.1)
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]


def test_a_folder_whose_name_is_not_utf8(place, capsys):
    name = os.fsdecode(b"caf\xe9")
    Path("course").rename(name)
    assert place("--tasks", "sst", "--out", "run", data=name) == 0
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run", "--no_progress"]) == 0


# ---- flags and data --------------------------------------------------------------------------------------------------


def test_one_task_of_a_recipe_can_be_trained(place):
    assert place("--tasks", "sst", "--out", "run") == 0
    assert set(json.loads(Path("run/results.json").read_text())["dev"]) == {"sst"}


@pytest.mark.parametrize(("flags", "message"), [
    (["--tasks", "stt"], "--tasks stt: the recipe has no such task; its tasks: sst, para, sts (did you mean 'sts'?)"),
    (["--cfimdb_train", "x.csv"], "--cfimdb_train: there is no task cfimdb; tasks: sst, para, sts"),
    (["--nli_dev_out", "x.csv"], "--nli_dev_out: there is no task nli"),
    (["--tasks", "sst", "--sts_dev", "x.csv"], "--sts_dev: there is no task sts; tasks: sst"),
    (["--checkpoint", "run"], "--checkpoint has no effect with --option finetune"),
    (["--tasks", "sst", "--combine", "pcgrad"], "--combine has no effect: no stage trains two tasks together"),
    (["--out", "course/sts-dev.csv/run"], "cannot be written"),
    (["--sst_dev_out", "course/sts-dev.csv/x"], "cannot be written"),
])
def test_a_flag_without_effect_is_an_error(place, capsys, flags, message):
    assert place(*flags) == 2
    assert message in error_of(capsys)


@pytest.mark.parametrize("flag", [["--lr", "1e-3"], ["--seed", "3"], ["--weights", "x"], ["--sst_train", "x"],
                                  ["--combine", "sum"], ["--precision", "float32"]])
def test_training_flags_have_no_effect_on_an_evaluation(place, capsys, flag):
    assert place("--out", "run") == 0
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run", *flag]) == 2
    assert f"{flag[0]} has no effect with --option evaluate" in error_of(capsys)


def test_real_and_generated_data_never_mix(place, capsys):
    """A named file for one task, or a data/ with some files, lets no other task fall back to generated data."""
    assert place("--sst_train", "course/ids-sst-train.csv", data=None) == 2
    assert "no such file, while" in error_of(capsys)
    Path("data").mkdir()
    shutil.copy("course/sts-train.csv", "data")
    assert place(data=None) == 2
    assert "no such file, while sts-train.csv is given" in error_of(capsys)
    files = ["--sst_train", "course/ids-sst-train.csv", "--sst_dev", "course/ids-sst-dev.csv"]
    assert place("--tasks", "sst", *files, data=None) == 0
    assert "GENERATED" not in capsys.readouterr().out


@pytest.mark.parametrize(("flag", "meant"), [("--learning_rate", "--lr"), ("--fine-tune-mode", "--option"),
                                             ("--sst_trian", "--sst_train"), ("--epoches", "--epochs")])
def test_near_misses_of_flags_are_suggested(flag, meant, capsys):
    with pytest.raises(SystemExit):
        train_multitask.main([flag, "1"])
    assert f"(did you mean {meant}?)" in capsys.readouterr().err


@pytest.mark.parametrize("program", [train_multitask, pretrain_tft])
def test_help_describes_every_flag(program):
    for action in program.parser()._actions:
        assert action.help, action.option_strings


# ---- places and terminals --------------------------------------------------------------------------------------------


def test_control_characters_never_reach_the_terminal(place, capsys):
    path = Path("course/sts-dev.csv")
    path.write_text("\tid\tsentence1\x1b[31m\tsentence2\tsimilarity\n" + path.read_text().split("\n", 1)[1])
    assert place("--out", "run") == 2
    error = error_of(capsys)
    assert "\x1b" not in error and "\\x1b[31m" in error
    assert printable("a\nb\x07é") == "a\\nb\\x07é"


def test_output_that_knows_only_ascii_does_not_end_a_run(tmp_path, tiny_directory, toy_directory):
    shutil.copytree(toy_directory, tmp_path / "données")
    done = subprocess.run(command("train_multitask.py", "--weights", tiny_directory, "--data", "données", *FAST,
                                  "--tasks", "sst", "--out", "run"), cwd=tmp_path, capture_output=True, check=False,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and b"donn\\xe9es" in done.stdout


@pytest.mark.parametrize("cache", [True, False])
def test_no_home_directory(tmp_path, cache, toy_directory):
    """$XDG_CACHE_HOME is used; without it, one line says what to set."""
    code = ("import os, sys, pathlib\nsys.path.insert(0, sys.argv[1])\n"
            "def no_home(*a): raise RuntimeError('Could not determine home directory.')\n"
            "pathlib.Path.home = no_home\n"
            "import train_multitask\nsys.exit(train_multitask.main(sys.argv[2:]))")
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("HOME", "XDG_CACHE_HOME", "MINBERT_CACHE")}
    if cache:
        environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
        (tmp_path / "cache" / "minbert").mkdir(parents=True)
    done = subprocess.run([sys.executable, "-c", code, str(ROOT), "--data", str(toy_directory), *FAST, "--weights",
                           "nobody/nothing"], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**environment, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert ("weights 'nobody/nothing': not found" if cache else "set MINBERT_CACHE") in done.stderr


def test_progress_in_a_file_is_lines_and_no_carriage_returns(capfd, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("training.progress.time.monotonic", lambda: now[0])
    progress = Progress(100, 0, "stage 1", True)
    for _ in range(10):
        now[0] += 10
        progress.update({"sst": 1.5, "sts": None})
    progress.close()
    error = capfd.readouterr().err
    assert "\r" not in error and error.splitlines() == [
        f"stage 1: step {step} of 100, about {minutes} min to go; sst 1.5000"
        for step, minutes in ((3, 16), (6, 16), (9, 15))]


def test_a_full_disk_is_one_line_and_status_2(place, capsys, monkeypatch):
    def full(tensors, path, metadata=None):
        Path(path).write_bytes(b"half")
        import safetensors
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    assert place("--out", "run") == 2
    error = error_of(capsys)
    assert "No space left on device" in error and ".safetensors" in error and not list(Path("run").rglob(".*.part"))


# ---- training that goes wrong ----------------------------------------------------------------------------------------


def test_a_model_that_has_diverged_is_not_a_result(place, capsys):
    Path("r.toml").write_text('precision = "float32"\n[[stage]]\ntasks = ["sst", "sts"]\nclip = 0.0\nwarmup = 0.0\n'
                              'optimizer = { lr = 1e37, head_lr = 1e37, eps = 0.0 }\n')
    assert place("--recipe", "r.toml", "--out", "run", "--steps_per_epoch", 40) == 2
    error = error_of(capsys)
    assert "not finite" in error
    assert not Path("run/results.json").exists() and not Path("run/model.safetensors").exists()
    assert not Path("run/predictions").exists()
    for line in Path("run/metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_predictions_of_one_class_are_flagged(place, capsys):
    assert place("--option", "pretrain", "--lr", 0, "--tasks", "para", "--out", "run") == 0
    results = json.loads(Path("run/results.json").read_text())
    values = [row.prediction for row in load_predictions(Path("run/predictions/para-dev.jsonl"))]
    flagged = any("every dev prediction is" in warning for warning in results["warnings"])
    assert flagged == (len(set(values)) == 1)
    if flagged:
        assert "WARNING: task para: every dev prediction is" in capsys.readouterr().out


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"),
                                   RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")])
def test_running_out_of_memory_is_one_line(place, capsys, monkeypatch, error):
    def hungry(*arguments, **options):
        raise error

    monkeypatch.setattr("engine.bert.FastBertModel.forward", hungry)
    assert place("--out", "run") == 2
    message = error_of(capsys)
    assert "out of memory: a batch of 8 examples of task sst, 8 sequences of" in message
    assert "lower batch_size or max_length" in message and not Path("run/metrics.jsonl").read_text()


def test_the_longest_batch_is_tried_before_the_first_step(place, monkeypatch):
    lengths = []
    from engine.bert import FastBertModel
    forward = FastBertModel.forward

    def watching(self, input_ids, *arguments, **options):
        lengths.append(input_ids.shape[1])
        return forward(self, input_ids, *arguments, **options)

    monkeypatch.setattr(FastBertModel, "forward", watching)
    assert place("--tasks", "sts", "--out", "run") == 0
    assert lengths[0] == max(lengths[:3])


def test_a_correlation_with_a_constant_is_zero():
    given = case("metric-two-constants")["input"]
    assert pearson(given["x"], given["y"]) == 0
    for x, y, count in ((0.1, 0.7, 3), (1.81, 0.576, 1448), (3.8, 0.7, 863)):
        assert pearson([x] * count, [y] * count) == 0
    assert pearson([1.0, 2.0], [0.7, 0.7]) == 0


def test_ctrl_c_waits_for_the_end_of_a_fork():
    """Also where another thread can take the signal, as one of torch's."""
    order, end = [], threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background pytest ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            with ctrl_c_later():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
                order.append("inside")
            order.append("never")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, heard)
        end.set()
        thread.join()
    assert order == ["inside"]
