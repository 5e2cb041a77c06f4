"""The lesson's encoder against transformers' BertModel on the same weights."""
import dataclasses

import pytest
import torch
import transformers
from conftest import TINY
from torch.testing import assert_close

from minbert.batch import TokenBatch
from minbert.bert import BertModel
from minbert.weights import load_encoder


@pytest.fixture(scope="module")
def both(model_directory):
    ours, tokenizer, _ = load_encoder(model_directory)
    theirs = transformers.BertModel.from_pretrained(model_directory, attn_implementation="eager").eval()
    return ours.eval(), theirs, tokenizer


def batch_of(tokenizer, texts):
    batch = TokenBatch.from_sequences([tokenizer.build(ids, max_length=128) for ids in tokenizer.ids(texts)],
                                      tokenizer.pad_id)
    return batch.input_ids, batch.attention_mask


def test_hidden_states_equal_transformers_on_200_sentences(both, sentences):
    ours, theirs, tokenizer = both
    ids, mask = batch_of(tokenizer, sentences[:200])
    with torch.inference_mode():
        mine = ours(ids, mask, output_hidden_states=True, output_attentions=True)
        reference = theirs(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True,
                           output_attentions=True)
    assert len(mine.hidden_states) == 7 and len(mine.attentions) == 6
    for first, second in zip(mine.hidden_states, reference.hidden_states, strict=True):
        assert_close(first[mask], second[mask], rtol=0, atol=1e-5)
    real = mask[:, None, :, None] & mask[:, None, None, :]
    for first, second in zip(mine.attentions, reference.attentions, strict=True):
        assert_close(first * real, second * real, rtol=0, atol=1e-5)
    assert_close(mine.last_hidden_state, mine.hidden_states[-1], rtol=0, atol=0)
    assert_close(mine.pooler_output, reference.pooler_output, rtol=0, atol=1e-5)


def test_gradients_equal_transformers(both, sentences):
    ours, theirs, tokenizer = both
    ids, mask = batch_of(tokenizer, sentences[:16])
    torch.manual_seed(0)
    weights = torch.randn(*ids.shape, ours.config.hidden_size) * mask[..., None]
    for model, output in ((ours, ours(ids, mask)), (theirs, theirs(input_ids=ids, attention_mask=mask.long()))):
        model.zero_grad()
        ((output.last_hidden_state * weights).mean() + output.pooler_output.mean()).backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert_close(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


def test_nothing_is_returned_that_was_not_asked_for(tiny_model):
    output = tiny_model(torch.tensor([[5, 6]]))
    assert output.hidden_states is None and output.attentions is None


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
    config = dataclasses.replace(TINY, hidden_act=activation)
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


def test_a_sequence_of_padding_alone_is_finite_in_both_passes(tiny_model):
    ids = torch.randint(5, 1000, (2, 5))
    output = tiny_model(ids, torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]))
    assert output.last_hidden_state.isfinite().all() and output.pooler_output.isfinite().all()
    output.last_hidden_state[0, :3].square().sum().backward()
    assert all(p.grad.isfinite().all() for p in tiny_model.parameters() if p.grad is not None)


@pytest.mark.parametrize("model", ["tiny_model", "fast_model"])
def test_too_long_a_sequence_and_foreign_ids_are_clear_errors(model, request):
    model = request.getfixturevalue(model)
    with pytest.raises(ValueError, match="65 tokens; this model has 64 positions"):
        model(torch.full((1, 65), 7))
    for wrong in (-1, 1000):
        with pytest.raises(ValueError, match="input_ids"):
            model(torch.tensor([[5, wrong]]))
    with pytest.raises(ValueError, match="token_type_ids"):
        model(torch.tensor([[5, 6]]), None, torch.tensor([[0, 2]]))


def test_new_weights_have_berts_distribution():
    """Devlin et al. 2019: normal with deviation 0.02, zero biases, LayerNorm at 1 and 0."""
    torch.manual_seed(0)
    model = BertModel(dataclasses.replace(TINY, hidden_size=64))
    for name, parameter in model.named_parameters():
        if "LayerNorm" in name:
            assert torch.equal(parameter, torch.full_like(parameter, float(name.endswith("weight"))))
        elif name.endswith("bias"):
            assert not parameter.any()
        else:
            count = parameter.numel()
            assert abs(parameter.mean()) < 6 * 0.02 / count**0.5
            assert abs(parameter.std() - 0.02) < 6 * 0.02 / (2 * count) ** 0.5


def test_new_layers_run_like_the_models_own(tiny_model):
    """Running the model's own layers on its embeddings gives its output."""
    ids = torch.randint(5, 1000, (2, 6))
    output = tiny_model(ids, output_hidden_states=True)
    states, _ = tiny_model.run_layers(tiny_model.encoder["layer"], output.hidden_states[0], torch.ones(2, 6).bool())
    assert_close(states[-1], output.last_hidden_state)
