"""Models' directories: tokenizer and chat template as Hugging Face writes them."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from tokenizers import models, pre_tokenizers, processors

from geotrain.errors import InputError
from geotrain.serving.model_card import ModelCard

CHATML = """{{ bos_token }}{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] | trim }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PICKY = "{% if messages[0].role != 'user' %}{{ raise_exception('the user must begin') }}{% endif %}ok"
HELLO = [{"role": "user", "content": "hello "}]
SPECIALS = ["<s>", "<|im_start|>", "<|im_end|>"]


def write_model(directory: Path, *, template: Any = None, config: dict[str, Any] | None = None) -> Path:
    """A tokenizer of bytes that puts <s> before a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab={sign: at for at, sign in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"__type": "AddedToken", "content": "<s>"},
    } | (config or {})
    if template is not None:
        settings["chat_template"] = template
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def card(directory: Path, vocab_size: int = 259) -> ModelCard:
    return ModelCard.load(directory, name="m", created=0, max_model_len=100, vocab_size=vocab_size)


def test_text_and_conversation_become_the_tokens_that_transformers_gives(tmp_path: Path):
    write_model(tmp_path, template=CHATML)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = card(tmp_path)
    assert ours.encode("hi <|im_end|>") == tuple(theirs("hi <|im_end|>").input_ids)
    assert ours.encode("hi")[0] == 256
    messages = [{"role": "system", "content": "Sei kurz. ä€😀"}, *HELLO]
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ours.chat(messages) == tuple(expected)


@pytest.mark.parametrize(
    "template",
    [
        pytest.param([{"name": "tools", "template": "x"}, {"name": "default", "template": CHATML}], id="list"),
        pytest.param(CHATML, id="text"),
    ],
)
def test_templates_in_the_tokenizers_settings(tmp_path: Path, template: Any):
    ours = card(write_model(tmp_path, template=template))
    assert ours.template.render(HELLO) == "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_in_its_own_file_counts_more(tmp_path: Path):
    write_model(tmp_path, template=CHATML)
    (tmp_path / "chat_template.jinja").write_text("{{ messages | tojson }}{{ bos_token }}")
    assert card(tmp_path).template.render(HELLO) == '[{"role": "user", "content": "hello "}]<s>'


def test_without_a_template_a_plain_one(tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert card(tmp_path).template.render(HELLO) == "User: hello \n\nAssistant:"


def test_messages_that_a_template_refuses(tmp_path: Path):
    ours = card(write_model(tmp_path, template=PICKY))
    with pytest.raises(InputError, match="does not take these messages: the user must begin"):
        ours.chat([{"role": "system", "content": "x"}])


@pytest.mark.parametrize(
    "source",
    ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{% for i in range(10**9) %}x{% endfor %}"],
    ids=["escape", "change", "flood"],
)
def test_templates_are_shut_in(tmp_path: Path, source: str):
    with pytest.raises(InputError, match="does not take these messages"):
        card(write_model(tmp_path, template=source)).chat(HELLO)


def test_wrong_directories(tmp_path: Path):
    with pytest.raises(InputError, match=r"tokenizer\.json: no such file"):
        card(tmp_path)
    write_model(tmp_path, template="{% if %}")
    with pytest.raises(InputError, match=r"tokenizer_config\.json: its chat template is not valid"):
        card(tmp_path)
    with pytest.raises(InputError, match=r"has token 258, but the model's vocab_size is 200"):
        card(tmp_path, vocab_size=200)
    for entries in ([{"name": "default"}], ["default"], [{"name": [], "template": ""}]):
        write_model(tmp_path, template=entries)
        with pytest.raises(InputError, match="chat_template must have a name and a template in each of its entries"):
            card(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(InputError, match=r"tokenizer_config\.json: must be a JSON object"):
        card(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: is not a tokenizer\.json"):
        card(tmp_path)
