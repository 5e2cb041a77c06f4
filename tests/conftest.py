"""What several test files need: the default weights, a tiny model, real data where it lies beside the project."""
import json
import os
import re
from dataclasses import replace
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # several test processes share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here may wait for a hub; tests of the hub set it back

from corpora import toy  # noqa: E402
from engine.bert import FastBertModel  # noqa: E402
from minbert.batch import TokenBatch  # noqa: E402
from minbert.bert import BertModel  # noqa: E402
from minbert.config import BertConfig  # noqa: E402
from minbert.pretrained import fetch  # noqa: E402
from minbert.tokenizer import SPECIAL_TOKENS, BertTokenizer  # noqa: E402
from minbert.weights import export, make_encoder  # noqa: E402
from tasks.options import OPTIONS  # noqa: E402
from tasks.registry import TASKS  # noqa: E402
from tasks.task import Task  # noqa: E402


@pytest.fixture(autouse=True)
def full_precision():
    """Programs lower the precision of matrix products for the whole process; each test begins with the full one."""
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(autouse=True)
def no_report(request, monkeypatch):
    """A report takes seconds, and most tests do not read it. Those with the marker `reports` get one."""
    if request.node.get_closest_marker("reports") is None:
        monkeypatch.setattr("training.program.report_of", lambda folder: folder / "report.html")


def make_task(kind: str, name: str, tokenizer: BertTokenizer, config: BertConfig, options: dict) -> Task:
    """A task with these options, checked as a recipe's are."""
    return TASKS[kind](name, tokenizer, config, OPTIONS[kind](**options))


@pytest.fixture(scope="session")
def model_directory() -> Path:
    return fetch()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not (SHARED / "data").is_dir():
        pytest.skip("no real data beside the project")
    return SHARED / "data"


def cases(kind: str) -> list:
    """Cases of shared/cases.json that share a kind and a test, as pytest parameters; without them one is skipped."""
    path = SHARED / "cases.json"
    found = [case for case in json.loads(path.read_text("utf-8"))
             if case["kind"] == kind and "bug_log" in case] if path.exists() else []
    if not found:
        return [pytest.param(None, marks=pytest.mark.skip(reason="no cases.json beside the project"))]
    return [pytest.param(case, id=case["id"]) for case in found]


def case(identifier: str) -> dict:
    """One case of shared/cases.json. Skips the test where there is no such file."""
    path = SHARED / "cases.json"
    if not path.exists():
        pytest.skip("no cases.json beside the project")
    return next(found for found in json.loads(path.read_text("utf-8")) if found["id"] == identifier)


def words_of_the_toy_corpora() -> list[str]:
    text = " ".join([*(wording for role in toy.ROLES.values() for wordings in role.values() for wording in wordings),
                     *(opinion for level in toy.OPINIONS for opinion in level), *toy.ASPECTS, *toy.FRAMES,
                     *toy.TOPICS, *toy.GENERAL.values(), "for a friend because of bet second time to earn some money"])
    return sorted(set(re.findall(r"[a-z]+", text)))


collect_ignore = ["relaid"]  # a student's folder, which test_course_checks.py copies
TINY = BertConfig(vocab_size=1000, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                  max_position_embeddings=64)
DEEP = replace(TINY, num_hidden_layers=4)
MPNET = replace(TINY, model_type="mpnet")


@pytest.fixture(autouse=True)
def threads():
    """Give torch its threads back: the course's commands set them, and another number of threads rounds otherwise."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_tokenizer() -> BertTokenizer:
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + list("0123456789")
    tokens = [*SPECIAL_TOKENS, *".,!?'-\"()", *letters, *(f"##{letter}" for letter in letters),
              *words_of_the_toy_corpora()]
    return BertTokenizer(list(dict.fromkeys(tokens)))


def exported(config: BertConfig, tokenizer: BertTokenizer, directory: Path) -> Path:
    torch.manual_seed(0)
    export(BertModel(config), tokenizer, directory)
    return directory


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory, tiny_tokenizer) -> Path:
    """A model directory small enough that a program's run takes seconds."""
    return exported(TINY, tiny_tokenizer, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def deep_directory(tmp_path_factory, tiny_tokenizer) -> Path:
    """A model directory with layers enough for recipes whose tasks have own top layers."""
    return exported(DEEP, tiny_tokenizer, tmp_path_factory.mktemp("deep"))


def encoder_of(config, kind):
    """An encoder whose every parameter matters."""
    torch.manual_seed(0)
    encoder = make_encoder(config, kind)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return encoder.eval()


@pytest.fixture
def tokens(tiny_tokenizer):
    """A batch of two sentences."""
    return TokenBatch.from_sequences([tiny_tokenizer.build(ids) for ids in tiny_tokenizer.ids(["a b c", "d"])],
                                     tiny_tokenizer.pad_id)


@pytest.fixture
def tiny_model() -> BertModel:
    torch.manual_seed(0)
    return BertModel(TINY).eval()


@pytest.fixture
def fast_model(tiny_model) -> FastBertModel:
    """The engine's twin of tiny_model."""
    model = FastBertModel(TINY).eval()
    model.load_state_dict(tiny_model.state_dict())
    return model


@pytest.fixture(scope="session")
def toy_directory(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("toy")
    toy.write_course_files(directory, train=64, dev=24, test=12)
    toy.write_glue_files(directory, train=40, dev=20, test=10)
    toy.write_aligned_files(directory, train=40, dev=12, test=12)
    return directory


@pytest.fixture(scope="session")
def sentences(tmp_path_factory) -> list[str]:
    """200 real sentences, or generated ones, of very different lengths."""
    path = SHARED / "data" / "cs224n" / "quora-dev.csv"
    if path.exists():
        lines = path.read_text("utf-8").split("\n")[1:101]
        return [text for line in lines for text in line.split("\t")[2:4]]
    rows = toy.rows(toy.similarity_row, 100, 1, "sentences")
    return [text for row in rows for text in (row[0], row[1] + " " + row[0])]
