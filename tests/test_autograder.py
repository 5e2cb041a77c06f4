"""The autograder: right work gets its points, wrong work its reasons, and attacks get nothing and leave nothing."""
import dataclasses
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from course import handout
from course.autograder import build, sandbox, submission
from course.autograder.__main__ import as_check50, as_gradescope, grade, main, read_answer
from course.exercises import load_course
from course.probes import PROBES

COURSE = load_course()
ISOLATED = sandbox.isolates()
isolated = pytest.mark.skipif(not ISOLATED, reason="no sandbox can be made here: it needs root and namespaces")


def written(tmp_path, name, files):
    """A submission: the starter's rooms, with these files over them."""
    folder = tmp_path / name
    handout.build(folder, COURSE, scan=False)
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


def reference(file):
    return (ROOT / file).read_text(encoding="utf-8")


def processes_of_workers():
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid >= sandbox.FIRST_USER and (entry / "stat").read_text().split(")")[1][1] != "Z":
                    found.append(entry.name)
            except OSError:
                continue
    return found


def graded(folder, tmp_path, exercises):
    out = tmp_path / "results.json"
    grades = grade(folder, COURSE, out, trust=not ISOLATED, exercises=exercises)
    return {one.exercise.name: one for one in grades}, json.loads(out.read_text())


def test_right_work_gets_all_points_and_wrong_work_is_named(tmp_path):
    wrong = reference("minbert/adamw.py").replace("/ (root_of_v_hat + eps)", "/ root_of_v_hat")
    folder = written(tmp_path, "mine", {"minbert/attention.py": reference("minbert/attention.py"),
                                        "minbert/adamw.py": wrong})
    grades, results = graded(folder, tmp_path, ["embeddings", "attention", "heads", "adamw"])
    assert [(one.score, one.passed) for one in grades.values()] == [(0, False), (10, True), (8, True), (0, False)]
    assert "exercise 2, embeddings" in grades["embeddings"].output
    assert grades["adamw"].mistakes == ["W8"] and "your output EQUALS no eps (mistake W8)" in grades["adamw"].output
    assert results["score"] == 18.0 and isinstance(results["execution_time"], int)
    for test in results["tests"]:
        assert test["status"] in ("passed", "failed") and 0 <= test["score"] <= test["max_score"]
        assert isinstance(test["output"], str) and len(test["output"]) <= 4096


@pytest.mark.slow
def test_the_whole_reference_through_the_command_line(tmp_path):
    folder = tmp_path / "ref"
    for room in submission.ROOMS:
        shutil.copytree(ROOT / room, folder / "nested" / room, ignore=shutil.ignore_patterns("__pycache__"))
    with zipfile.ZipFile(tmp_path / "ref.zip", "w") as archive:
        for path in sorted(folder.rglob("*.py")):
            archive.write(path, path.relative_to(folder).as_posix())
    flags = [] if ISOLATED else ["--trust"]
    with open(tmp_path / "said", "w+", encoding="utf-8") as said:
        process = subprocess.Popen([sys.executable, "-m", "course.autograder", str(tmp_path / "ref.zip"), "--out",
                                    str(tmp_path / "r.json"), *flags], cwd=ROOT, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    assert process.returncode == 0, text
    assert "100 of 100 points" in text and json.loads((tmp_path / "r.json").read_text())["score"] == 100.0
    assert usage.ru_maxrss < 768 << 10  # kB: what Gradescope's smallest container gives


@isolated
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_an_interpreter_in_closed_folders_runs_for_another_user(tmp_path, depth):
    """A build server makes its environment in a temporary folder, which only its owner may enter."""
    environment = Path(tempfile.mkdtemp())  # only its owner enters it
    try:
        for name in ("outer", "inner")[:depth]:
            environment = environment / name
            environment.mkdir(mode=0o700)
        venv.create(environment, symlinks=True)
        environment.chmod(0o700)
        (tmp_path / "stage").mkdir()
        options = {"user": sandbox.FIRST_USER, "limits": {}, "stage": str(tmp_path / "stage"), "hidden": [str(ROOT)],
                   "needed": [str(environment), sys.base_prefix],
                   "command": [str(environment / "bin/python"), "-c",
                               f"import os, sys; print(os.getuid(), sys.prefix, os.listdir({str(ROOT)!r}))"]}
        done = subprocess.run([sys.executable, "-I", "-B", str(ROOT / "course/autograder/launch.py"),
                               json.dumps(options)], capture_output=True, text=True, check=False)
        assert done.stdout.split() == [str(sandbox.FIRST_USER), str(environment), "[]"], done.stderr
    finally:
        shutil.rmtree(Path(*environment.parts[:len(environment.parts) - depth]))


@pytest.mark.slow
def test_code_in_one_file_with_other_names_gets_all_points(tmp_path):
    relaid = ROOT / "tests" / "relaid"
    folder = written(tmp_path, "mine", {
        file: (relaid / file).read_text(encoding="utf-8") for file in ("minbert/everything.py", "course/adapters.py")})
    grades, results = graded(folder, tmp_path, list(PROBES))
    assert {name: one.output for name, one in grades.items() if not one.passed} == {} and results["score"] == 100.0


def test_code_that_fails_in_one_exercise_leaves_the_others_graded(tmp_path):
    broken = reference("minbert/bert.py")
    broken = broken.replace("        total = (self.word_embeddings(input_ids)", "        raise KeyError('mine')\n"
                            "        total = (self.word_embeddings(input_ids)", 1)
    folder = written(tmp_path, "mine", {"minbert/bert.py": broken})
    grades, _ = graded(folder, tmp_path, ["embeddings", "add_norm"])
    assert grades["add_norm"].passed
    assert "minbert/bert.py:" in grades["embeddings"].output and "KeyError: 'mine'" in grades["embeddings"].output


def test_a_fault_of_the_grader_costs_nobody_a_point(tmp_path, monkeypatch, capsys):
    from course import mutations

    real = mutations.outputs_of

    def broken(subject, exercise, seed=0):
        if exercise == "attention":
            raise RuntimeError("ours")
        return real(subject, exercise, seed)

    monkeypatch.setattr(mutations, "outputs_of", broken)
    folder = written(tmp_path, "mine", {})
    grades, results = graded(folder, tmp_path, ["embeddings", "attention"])
    assert grades["attention"].fault and grades["attention"].score == 10 and grades["embeddings"].score == 0
    assert "grader fault" in results["tests"][1]["output"] and "ours" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "reason"), [
    ("import os\nos._exit(0)", "ended the process (status 0)"),
    pytest.param("while True: pass", "no answer in time", marks=pytest.mark.slow)], ids=["ends", "hangs"])
def test_code_that_hangs_or_ends_while_it_is_imported_is_started_once(tmp_path, monkeypatch, text, reason):
    starts = []
    popen = subprocess.Popen
    monkeypatch.setattr(sandbox, "FIRST", 20.0)
    monkeypatch.setattr(sandbox.subprocess, "Popen", lambda *a, **k: starts.append(a) or popen(*a, **k))
    folder = written(tmp_path, "mine", {"minbert/attention.py": text})
    grades, _ = graded(folder, tmp_path, list(PROBES))
    assert sum("worker.py" in str(command) for command in starts) == 1
    assert all(reason in one.output and one.score == 0 for one in grades.values())


ATTACKS = {
    "exit at import": "import os\nos._exit(0)",
    "exit by exception": "raise SystemExit(0)",
    "patched allclose": "import torch, numpy\ntorch.allclose = numpy.allclose = lambda *a, **k: True",
    "equal to everything": """
        class Yes(float):
            def __eq__(self, other): return True
            def __sub__(self, other): return 0.0
        def attention(*a, **k): return Yes(), Yes()""",
    "a tensor that lies": """
        import torch
        class Liar(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *a, **k): return torch.zeros(2, 3, 5, 4)
        def attention(q, k, v, mask, p=0.0): return q.as_subclass(Liar), None""",
    "results written directly": """
        import glob, os
        for path in glob.glob("/tmp/**/results.json", recursive=True) + ["TARGET"]:
            try: open(path, "w").write('{"score": 100}')
            except OSError: pass""",
    "results at exit": """
        import atexit
        def late():
            try: open("TARGET", "w").write('{"score": 100}')
            except OSError: pass
        atexit.register(late)""",
    "an orphan that comes back": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    try: open("TARGET", "w").write('{"score": 100}')
                    except OSError: pass
                    time.sleep(0.05)
            os._exit(0)""",
    "answers looked for": """
        import glob, os
        seen = glob.glob("ROOT/**", recursive=True) + glob.glob("/proc/%d/mem" % os.getppid())
        for path in ["ROOT/minbert/attention.py", "ROOT/course/checks/attention.npz"]:
            open(path, "rb").read()""",
    "the parent's memory": "import os\nopen('/proc/%d/environ' % os.getppid(), 'rb').read()",
    "the parent killed": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "everybody killed": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "a forged protocol": """
        import sys
        print('{"attention": "passed", "score": 100}')
        print("passed", file=sys.stderr)""",
    "a loop": "while True: pass",
    "a sleep": "import time\ntime.sleep(10_000)",
    "a fork bomb": """
        import os
        while True:
            try: os.fork()
            except OSError: pass""",
    "10 GB of memory": "x = bytearray(10 << 30)\nx[::4096] = b'1' * len(x[::4096])",
    "10 GB of output": """
        import sys
        while True: sys.stdout.write("x" * (1 << 20)); open("/tmp/grading-flood", "ab").write(b"x" * (1 << 20))""",
    "a huge array": """
        import torch
        def attention(q, k, v, mask, p=0.0): return torch.zeros(1 << 28, dtype=torch.float64), None""",
    "pickles in the answer": """
        import numpy, torch
        numpy.savez = lambda file, **arrays: numpy.lib.npyio.savez_compressed(
            file, **{name: numpy.array([print], dtype=object) for name in arrays})""",
    "the network": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 2).send(b'hello')",
    "a banned call": """
        import torch
        def attention(q, k, v, mask, p=0.0):
            f = getattr(torch.nn.functional, "scaled_" + "dot_product_attention")
            bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -1e30)[:, None, None]
            return f(q, k, v, bias, p), None""",
    "torch's own AdamW": """
        import torch
        AdamW = getattr(torch.optim, "Adam" + "W")""",
}
FAST = {"exit at import", "answers looked for", "a banned call", "the network"}


@isolated
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow)
                                  for name in ATTACKS])
def test_attacks_gain_nothing_and_leave_nothing(tmp_path, name, monkeypatch):
    if name == "a loop" or name == "a sleep":
        monkeypatch.setattr(sandbox, "FIRST", 15.0)
    monkeypatch.setattr(sandbox, "EACH", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        text = textwrap.dedent(ATTACKS[name]).strip().replace("TARGET", str(tmp_path / "results.json"))
        text = text.replace("ROOT", str(ROOT)).replace("PORT", str(listener.getsockname()[1]))
        file = "minbert/adamw.py" if "AdamW" in name else "minbert/attention.py"
        folder = written(tmp_path, "attack", {})
        with open(folder / file, "a", encoding="utf-8") as target:
            target.write("\n\n" + text + "\n")
        watched = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (ROOT / "course").rglob("*.py")}
        exercise = "adamw" if "AdamW" in name else "attention"
        grades, results = graded(folder, tmp_path, [exercise, "mixing"])
        with pytest.raises(TimeoutError):
            listener.accept()
    assert grades[exercise].score == 0 and grades["mixing"].score == 0 and results["score"] == 0.0
    assert len(results["tests"]) == 2 and grades[exercise].output.strip() not in ("", "did not finish")
    assert processes_of_workers() == []
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == value for path, value in watched.items())
    assert not list(Path("/tmp").glob("grading-*/out"))
    Path("/tmp/grading-flood").unlink(missing_ok=True)
    reasons = {"answers looked for": "FileNotFoundError", "a banned call": "is not allowed in this exercise",
               "exit at import": "ended the process", "the network": "Error", "a sleep": "no answer in time",
               "the parent's memory": "PermissionError",
               "torch's own AdamW": "is not allowed in this exercise"}
    assert reasons.get(name, "") in grades[exercise].output


# ---- submissions that are no submissions -----------------------------------------------------------------------------


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if isinstance(name, zipfile.ZipInfo):
                archive.writestr(name, content)
            else:
                archive.writestr(name, content)
    return path


def link(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(("members", "message"), [
    ({"../evil.py": "x"}, "leads out of the submission"), ({"/etc/evil.py": "x"}, "leads out of the submission"),
    ({"minbert/../../evil.py": "x"}, "leads out of the submission"),
    ({link("minbert/a.py"): "/etc/passwd"}, "is a link"),
    ({"minbert/a.py": "0" * (21 << 20)}, "is larger than 20 MB"), ({"a.py": ""}, "has no folder minbert"),
    ({f"minbert/{n}.py": "" for n in range(2001)}, "more than 2000 files")])
def test_hostile_zips_are_one_error(tmp_path, capsys, members, message):
    path = zipped(tmp_path / "s.zip", members)
    assert main([str(path), "--out", str(tmp_path / "r.json"), "--trust"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert json.loads((tmp_path / "r.json").read_text())["score"] == 0.0
    assert not (tmp_path / "evil.py").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no zip at all"])
def test_what_is_no_zip_is_one_error(tmp_path, capsys, content):
    (tmp_path / "s.zip").write_bytes(content)
    assert main([str(tmp_path / "s.zip"), "--out", str(tmp_path / "r.json")]) == 2
    assert "cannot be unpacked" in capsys.readouterr().err


def test_links_in_a_folder_are_refused(tmp_path):
    (tmp_path / "mine" / "minbert").mkdir(parents=True)
    (tmp_path / "mine" / "minbert" / "a.py").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="is a link"):
        submission.unpack(tmp_path / "mine", tmp_path / "out")


def test_files_beside_the_rooms_are_never_used(tmp_path):
    folder = written(tmp_path, "mine", {"torch.py": "raise SystemExit", "sitecustomize.py": "raise SystemExit",
                                        "conftest.py": "raise SystemExit", "minbert/new.py": "x = 1"})
    submission.assemble(folder, tmp_path / "place", COURSE, ROOT)
    code = tmp_path / "place" / "code"
    assert not (code / "torch.py").exists() and not (code / "sitecustomize.py").exists()
    assert (code / "minbert" / "new.py").exists()


@pytest.mark.parametrize(("text", "name"), [
    ("import torch.nn.functional as F\nF.scaled_dot_product_attention", "scaled_dot_product_attention"),
    ("from torch.nn import MultiheadAttention", "MultiheadAttention"), ("import transformers", "transformers"),
    ("from transformers import BertModel", "transformers"), ("import torch\ntorch.optim.AdamW", "torch.optim.AdamW"),
    ("import torch\nclass A(torch.optim.Adam): pass", "torch.optim.Adam"),
    ("from torch.optim import AdamW as Mine", "torch.optim.AdamW")])
def test_shortcuts_are_found_in_the_text(tmp_path, text, name):
    (tmp_path / "minbert").mkdir()
    (tmp_path / "minbert" / "notes.py").write_text(text + "\n")  # in whatever file
    found = submission.shortcuts(tmp_path, COURSE)
    file = next(exercise for exercise, uses in found.items() if uses)
    assert any(use.startswith("minbert/notes.py:") and use.endswith(name) for use in found[file])
    assert all(found.values()) == (name == "transformers")  # in no exercise


def test_the_starter_and_the_reference_have_no_shortcuts():
    assert not any(submission.shortcuts(ROOT, COURSE).values())


def test_answers_that_are_no_arrays_are_not_read(tmp_path):
    np.savez(tmp_path / "pickled.npz", output=np.array([print], dtype=object))
    np.savez_compressed(tmp_path / "large.npz", output=np.zeros(4 << 20))
    (tmp_path / "text.npz").write_text("x")
    (tmp_path / "link.npz").symlink_to(tmp_path / "large.npz")
    np.savez(tmp_path / "good.npz", output=np.ones(2))
    for name in ("pickled", "large", "text", "link", "missing"):
        assert read_answer(tmp_path / f"{name}.npz") is None
    assert read_answer(tmp_path / "good.npz")["output"].tolist() == [1, 1]


def test_control_characters_of_students_never_reach_the_results():
    from course.autograder.__main__ import Grade

    evil = Grade(COURSE.exercises["attention"], output="\x1b[31mred\x00" + "x" * 10_000)
    for form in (as_gradescope, as_check50):
        text = json.dumps(form([evil], 1.0), ensure_ascii=False)
        assert "\x1b" not in text and "\x00" not in text


def test_without_root_the_code_must_be_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "isolates", lambda: False)
    with pytest.raises(ValueError, match="pass --trust"), sandbox.answers(tmp_path, tmp_path, [], 0):
        pass


def test_the_zip_has_what_gradescope_runs(tmp_path, capsys):
    assert build.main(["--out", str(tmp_path / "a.zip")]) == 0
    first = (tmp_path / "a.zip").read_bytes()
    assert build.main(["--out", str(tmp_path / "a.zip")]) == 0 and (tmp_path / "a.zip").read_bytes() == first
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = set(archive.namelist())
        assert {"setup.sh", "run_autograder", "requirements.txt", "course/autograder/__main__.py",
                "minbert/attention.py", "course/mistakes/encoder.py", "course/checks/attention.npz"} <= names
        workflow = archive.read(".github/workflows/classroom.yml").decode()
    assert workflow.count("autograding-command-grader@v1") == 13 and "max-score: 12" in workflow
    assert "ADD-NORM_RESULTS" in workflow and dataclasses.asdict(COURSE.exercises["adamw"])["points"] == 12
