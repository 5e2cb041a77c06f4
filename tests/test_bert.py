"""The encoder against transformers' BertModel on the same weights."""
import pytest
import torch
import transformers
from conftest import TINY
from torch.testing import assert_close

from minbert.bert import BertModel
from minbert.packing import Packing
from minbert.weights import load_encoder


@pytest.fixture(scope="module")
def both(model_directory):
    ours, tokenizer, _ = load_encoder(model_directory)
    theirs = transformers.BertModel.from_pretrained(model_directory, attn_implementation="eager").eval()
    return ours.eval(), theirs, tokenizer


def padded(tokenizer, texts):
    rows = [tokenizer.build(ids, max_length=128)[0] for ids in tokenizer.ids(texts)]
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    return ids, torch.arange(length) < torch.tensor([[len(row)] for row in rows])


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("batch", [200, 1])
def test_hidden_states_equal_transformers_on_200_sentences(both, sentences, fused, batch):
    """batch 200: with padding, packed inside; batch 1: no padding at all."""
    ours, theirs, tokenizer = both
    ours.fused = fused
    worst = 0.0
    with torch.inference_mode():
        for start in range(0, 200 if batch == 200 else 20, batch):
            ids, mask = padded(tokenizer, sentences[start:start + batch])
            mine = ours(ids, mask)
            reference = theirs(input_ids=ids, attention_mask=mask.long())
            worst = max(worst, (mine.last_hidden_state - reference.last_hidden_state)[mask].abs().max().item(),
                        (mine.pooler_output - reference.pooler_output).abs().max().item())
            assert (mine.last_hidden_state[~mask] == 0).all()
    ours.fused = True
    assert worst <= 1e-5


@pytest.mark.parametrize("fused", [True, False])
def test_gradients_equal_transformers(both, sentences, fused):
    ours, theirs, tokenizer = both
    ours.fused = fused
    ids, mask = padded(tokenizer, sentences[:16])
    weights = torch.randn(*ids.shape, ours.config.hidden_size) * mask[..., None]
    ours.zero_grad()
    theirs.zero_grad()
    output = ours(ids, mask)
    ((output.last_hidden_state * weights).mean() + output.pooler_output.mean()).backward()
    reference = theirs(input_ids=ids, attention_mask=mask.long())
    ((reference.last_hidden_state * weights).mean() + reference.pooler_output.mean()).backward()
    ours.fused = True
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert_close(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("mask", [[[1, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1], [1, 1, 0, 0]],
                                  [[1, 1, 0, 0], [0, 0, 0, 0]], [[0, 1, 1, 1], [1, 0, 1, 0]]])
def test_cls_only_gives_the_same_first_token_and_the_same_gradients(tiny_model, mask, fused):
    """full, padded, a row of padding alone, padding first; a weighted sum of both outputs is sent back."""
    model = tiny_model.double()
    model.fused = fused
    ids, mask = torch.randint(5, 1000, (2, 4)), torch.tensor(mask)
    weights = torch.randn(2, 2, TINY.hidden_size, dtype=torch.float64)
    results = []
    for cls_only in (False, True):
        model.zero_grad()
        output = model(ids, mask, cls_only=cls_only)
        assert output.last_hidden_state.shape[1] == (1 if cls_only else 4)
        first = output.last_hidden_state[:, 0]
        (weights * torch.stack([first, output.pooler_output])).sum().backward()
        results.append((first, output.pooler_output, {name: p.grad for name, p in model.named_parameters()}))
    assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)


def test_cls_only_has_no_other_hidden_states_to_show(tiny_model):
    with pytest.raises(ValueError, match="cls_only"):
        tiny_model(torch.tensor([[5, 6]]), cls_only=True, output_hidden_states=True)


def test_hidden_states_and_attentions_on_request(both, sentences):
    ours, theirs, tokenizer = both
    ids, mask = padded(tokenizer, sentences[:8])
    with torch.inference_mode():
        mine = ours(ids, mask, output_hidden_states=True, output_attentions=True)
        reference = theirs(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True,
                           output_attentions=True)
    assert len(mine.hidden_states) == 7 and len(mine.attentions) == 6
    for first, second in zip(mine.hidden_states, reference.hidden_states, strict=True):
        assert_close(first[mask], second[mask], rtol=0, atol=1e-5)
    for first, second in zip(mine.attentions, reference.attentions, strict=True):
        real = mask[:, None, :, None] & mask[:, None, None, :]
        assert_close(first * real, second * real, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch", [16, 1])
@pytest.mark.parametrize("cls_only", [False, True])
def test_bfloat16_is_as_near_to_float32_as_transformers_is(both, sentences, batch, cls_only):
    """The distance of hidden states and of the gradients, which stay float32, from those of full precision."""
    ours, theirs, tokenizer = both
    ids, mask = padded(tokenizer, sentences[:batch])
    kept = slice(0, 1) if cls_only else slice(None)
    weights = (torch.randn(*ids.shape, ours.config.hidden_size) * mask[..., None])[:, kept]
    rounded = transformers.BertModel(theirs.config).eval()
    rounded.load_state_dict(theirs.state_dict())
    rounded.to(torch.bfloat16)

    def run(model, dtype=None):
        model.zero_grad()
        if dtype is not None:
            model.compute_dtype = dtype
        arguments = {"cls_only": cls_only} if model is ours else {}
        hidden = model(input_ids=ids, attention_mask=mask, **arguments).last_hidden_state[:, kept].float()
        (hidden * weights).sum().backward()
        gradients = dict(model.named_parameters())
        found = [gradients[f"encoder.layer.{index}.{part}.dense.weight"].grad.float().clone()
                 for index in range(6) for part in ("attention.output", "intermediate", "output")]
        return [(hidden * mask[:, kept, None]).detach(), *found]

    exact = run(ours)
    mine, reference = run(ours, torch.bfloat16), run(rounded)
    ours.compute_dtype = None
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in ours.parameters())
    for right, first, second in zip(exact, mine, reference, strict=True):
        assert 0 < (first - right).norm() < 1.5 * (second - right).norm()
        assert (second - right).norm() < 0.1 * right.norm()


@pytest.mark.parametrize(("mask", "reshaped"), [
    ([[1, 1, 1, 1, 1]] * 2, False), ([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], True),
    ([[0, 1, 1, 0, 1], [0, 0, 0, 0, 0]], True), ([[1] * 7 + [0], [1] * 8], True),
    ([[1] * 9, [0, 1] + [0] * 7, [0] * 9, [1] + [0] * 8], False)])
@pytest.mark.parametrize("cls_only", [False, True])
def test_rounded_shapes_change_no_number(tiny_model, monkeypatch, mask, reshaped, cls_only):
    """The rows that a reduced precision adds, here at full precision: the same outputs and gradients."""
    model, mask = tiny_model.double(), torch.tensor(mask)
    assert Packing.from_mask(mask).rounded().reshaped == reshaped  # both kinds of them are here
    ids = torch.randint(5, 1000, mask.shape)
    batch, length = mask.shape
    weights = torch.randn(batch, 1 if cls_only else length, TINY.hidden_size, dtype=torch.float64)
    results = []
    for rounded in (False, True):
        monkeypatch.setattr(BertModel, "_products_are_compiled", lambda self, device, answer=rounded: answer)
        model.zero_grad()
        output = model(ids, mask, cls_only=cls_only, output_hidden_states=not cls_only, output_attentions=True)
        ((output.last_hidden_state * weights).sum() + output.pooler_output.sum()).backward()
        real = mask[:, None, :, None] * mask[:, None, None, :]
        results.append((output.last_hidden_state, output.hidden_states, output.pooler_output,
                        [a * real[..., :a.shape[2], :] for a in output.attentions],
                        {name: p.grad for name, p in model.named_parameters()}))
    assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)


def test_pairs_use_token_types(both):
    ours, theirs, tokenizer = both
    encoding = tokenizer.encode("how are you ?", "what is the time ?")
    ids, types = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    with torch.inference_mode():
        mine = ours(ids, None, types).last_hidden_state
        reference = theirs(input_ids=ids, token_type_ids=types).last_hidden_state
    assert_close(mine, reference, rtol=0, atol=1e-5)
    assert (mine - ours(ids).last_hidden_state).abs().max() > 1e-3


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_every_activation_equals_transformers(activation):
    torch.manual_seed(0)
    config = TINY.__class__(**{**vars(TINY), "hidden_act": activation})
    ours = BertModel(config).eval()
    shape = {name: value for name, value in vars(config).items() if name != "other"}
    theirs = transformers.BertModel(transformers.BertConfig(**shape)).eval()
    theirs.load_state_dict(ours.state_dict())
    ids = torch.randint(5, 1000, (3, 9))
    assert_close(ours(ids).last_hidden_state, theirs(input_ids=ids).last_hidden_state, rtol=0, atol=1e-5)


def test_a_batch_and_its_rows_alone_agree(tiny_model):
    ids = torch.randint(5, 1000, (4, 12))
    mask = torch.arange(12) < torch.tensor([[12], [7], [1], [3]])
    together = tiny_model(ids, mask)
    for row, length in enumerate([12, 7, 1, 3]):
        alone = tiny_model(ids[row:row + 1, :length])
        assert_close(together.last_hidden_state[row, :length], alone.last_hidden_state[0], rtol=1e-4, atol=1e-5)
        assert_close(together.pooler_output[row], alone.pooler_output[0], rtol=1e-4, atol=1e-5)


def test_a_packing_from_the_collator_gives_the_same(tiny_model):
    ids = torch.randint(5, 1000, (2, 6))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
    given = tiny_model(ids, mask, packing=Packing.from_mask(mask)).last_hidden_state
    assert torch.equal(given, tiny_model(ids, mask).last_hidden_state)


def test_a_row_of_padding_alone_is_zeros_and_finite_in_both_passes(tiny_model):
    ids = torch.randint(5, 1000, (2, 5))
    output = tiny_model(ids, torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]))
    assert (output.last_hidden_state[1] == 0).all() and output.pooler_output.isfinite().all()
    output.last_hidden_state.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in tiny_model.parameters() if p.grad is not None)


def test_too_long_a_sequence_and_foreign_ids_are_clear_errors(tiny_model):
    with pytest.raises(ValueError, match="65 tokens; this model has 64 positions"):
        tiny_model(torch.full((1, 65), 7))
    for wrong in (-1, 1000):
        with pytest.raises(ValueError, match="input_ids"):
            tiny_model(torch.tensor([[5, wrong]]))
    with pytest.raises(ValueError, match="token_type_ids"):
        tiny_model(torch.tensor([[5, 6]]), token_type_ids=torch.tensor([[0, 2]]))


def test_dropout_only_in_training(tiny_model):
    ids = torch.randint(5, 1000, (2, 9))
    assert torch.equal(tiny_model(ids).last_hidden_state, tiny_model(ids).last_hidden_state)
    tiny_model.train()
    assert not torch.equal(tiny_model(ids).last_hidden_state, tiny_model(ids).last_hidden_state)
