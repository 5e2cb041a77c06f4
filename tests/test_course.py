"""The courses' own checks run against this project, and so do ours; each sees a mistake."""
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from conftest import ROOT

from course import optimizer_test, sanity_check
from course.starter import AdamW, BertModel
from minbert.bert import BertModel as Lesson

# optimizer_test.npy of the course, as its handout prints it.
THE_COURSES = [[0.55482787, 0.86665666, 0.07291982], [-0.44724506, -0.2951228, -0.2717272]]


def test_the_shipped_values_are_transformers(model_directory):
    expected = torch.load(sanity_check.VALUES, weights_only=True)
    model = transformers.BertModel.from_pretrained(model_directory).eval()
    mask = (sanity_check.INPUT_IDS != 0).long()
    with torch.no_grad():
        outputs = model(sanity_check.INPUT_IDS, attention_mask=mask)
    torch.testing.assert_close(outputs.last_hidden_state * mask[:, :, None], expected["last_hidden_state"],
                               atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(outputs.pooler_output, expected["pooler_output"], atol=1e-5, rtol=1e-4)


def test_both_checks_pass_and_see_a_mistake(capsys, monkeypatch, tmp_path):
    assert sanity_check.main([]) == 0 and "The encoder is right" in capsys.readouterr().out
    assert optimizer_test.main([]) == 0 and "AdamW is right" in capsys.readouterr().out
    np.save(tmp_path / "course.npy", np.array(THE_COURSES, dtype=np.float32))
    assert optimizer_test.main(["--data", str(tmp_path / "course.npy")]) == 0
    np.save(tmp_path / "other.npy", np.array(THE_COURSES) + 0.001)
    assert optimizer_test.main(["--data", str(tmp_path / "other.npy")]) == 1

    def without_segments(self, input_ids, *others):
        return self.LayerNorm(self.word_embeddings(input_ids)
                              + self.position_embeddings(torch.arange(input_ids.shape[1])))

    monkeypatch.setattr("minbert.bert.Embeddings.forward", without_segments)
    assert sanity_check.main([]) == 1
    assert "last_hidden_state differs by up to" in capsys.readouterr().out


def test_a_check_in_the_courses_form_needs_only_other_imports(tmp_path, tiny_directory):
    """from_pretrained, outputs by name that can be assigned to, a pickled dict of two tensors, AdamW's defaults."""
    reference = transformers.BertModel.from_pretrained(tiny_directory).eval()
    ids = torch.tensor([[2, 9, 10, 3, 0, 0], [2, 9, 11, 12, 13, 3]])
    mask = (ids != 0).long()
    with torch.no_grad():
        expected = reference(ids, attention_mask=mask)
    torch.save({"last_hidden_state": expected.last_hidden_state, "pooler_output": expected.pooler_output},
               tmp_path / "sanity_check.data")
    np.save(tmp_path / "optimizer_test.npy", np.array(THE_COURSES, dtype=np.float32))
    (tmp_path / "check.py").write_text(f"""
import numpy, torch
from course.starter import AdamW, BertModel
data = torch.load("sanity_check.data")
bert = BertModel.from_pretrained({str(tiny_directory)!r})
mask = torch.tensor({mask.tolist()})
outputs = bert(torch.tensor({ids.tolist()}), mask)
for values in (outputs, data):
    values["last_hidden_state"] = values["last_hidden_state"] * mask.unsqueeze(-1)
for name in ("last_hidden_state", "pooler_output"):
    assert torch.allclose(outputs[name], data[name], atol=1e-5, rtol=1e-3), name
from course.optimizer_test import trained_weight
assert numpy.allclose(trained_weight(AdamW), numpy.load("optimizer_test.npy"), atol=1e-6, rtol=1e-4)
print("passed")
""")
    done = subprocess.run([sys.executable, "check.py"], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, text=True,
                          capture_output=True, check=False)
    assert done.stdout.strip() == "passed", done.stderr


def test_the_starters_names_are_the_lessons_classes():
    assert issubclass(BertModel, Lesson)
    parameter = torch.nn.Parameter(torch.ones(1))
    (group,) = AdamW([parameter]).param_groups
    assert (group["lr"], group["eps"], group["weight_decay"]) == (1e-3, 1e-6, 0.0)


@pytest.mark.parametrize(("content", "message"), [
    ({"last_hidden_state": torch.zeros(2, 8, 5)}, "last_hidden_state has shape [2, 8, 5]; expected [2, 8, 384]"),
    ({"last_hidden_state": torch.zeros(2, 8, 384)}, "pooler_output has none; expected [2, 384]"),
    (None, "no such file")])
def test_a_wrong_file_is_one_line(content, message, tmp_path, capsys):
    path = tmp_path / "sanity_check.pt"
    if content is not None:
        torch.save(content, path)
    assert sanity_check.main(["--data", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    for name in ("broken.npy", "none.npy"):
        assert optimizer_test.main(["--data", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert name in error and error.count("\n") == 1
