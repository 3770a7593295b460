"""Text quality: damaged characters, markup and mixed alphabets are flagged, normal texts of any language are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data.text_quality import (
    CONTROL,
    MARKUP,
    MIXED_ALPHABETS,
    MOJIBAKE,
    REPLACEMENT,
    estimate_tokens,
    script,
    text_flags,
)

LETTERS = "éèêëàáâäôöòóùúûüçñßøåæÉÀÖÜÑ"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("Ã©tÃ©", MOJIBAKE),
        ("itâ€™s", MOJIBAKE),
        ("Â£5", MOJIBAKE),
        ("ðŸ˜€", MOJIBAKE),
        ("what\ufffd now", REPLACEMENT),
        ("a\x00b", CONTROL),
        ("a\x9db", CONTROL),
        ("bread &amp; butter", MARKUP),
        ("a<br/>b <p class='x'>c</p>", MARKUP),
        ("&#39;quoted&#x27;", MARKUP),
        ("p\u0430ssword", MIXED_ALPHABETS),
        ("Ã© &lt; \x01", MOJIBAKE | MARKUP | CONTROL),
    ],
)
def test_each_quality_problem_is_flagged(text, flags):
    assert text_flags(text) == flags


@pytest.mark.parametrize(
    "text",
    [
        "usual words, a < b && c > d, R&D; AT&T",
        "two\nlines\tand a tab\r\n",
        "São Paulo, CAFÉ» « É—Ü… » naïve Ärger",
        "Привет мир и Latin words",
        "今日は天気がいい",
        "β-carotene ΔG 5 µm",
        "<3 you <not a tag>",
        "👍🏽 fine",
        "مرحبا",
        "",
    ],
)
def test_normal_texts_have_no_flags(text):
    assert text_flags(text) == 0


@given(st.text(st.sampled_from(LETTERS), min_size=1), st.sampled_from(["cp1252", "latin-1"]))
def test_wrongly_decoded_accents_are_always_flagged(text, codec):
    wrong = text.encode().decode(codec, "replace")
    assert text_flags(wrong) & (MOJIBAKE | REPLACEMENT)


@given(st.text(st.sampled_from(LETTERS + " abc"), max_size=20))
def test_correctly_decoded_accents_are_never_flagged(text):
    assert text_flags(text) == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [("abc", "Latin"), ("Привет abc", "Cyrillic"), ("東京", "Chinese, Japanese or Korean"), ("123", ""), ("…", "")],
)
def test_the_script_is_that_of_most_letters(text, name):
    assert script(text) == name


def test_token_estimates_are_near_those_of_the_bundled_encoder():
    from transformers import AutoTokenizer

    from bsc_core.encoders.bundled import bundled_folder

    texts = [
        "A man is playing a large flute in the middle of the street.",
        "Where can I buy a used car in Doha, and how do I register it afterwards?",
        "The committee approved the budget for the next fiscal year after a long debate. " * 8,
        "Où est la bibliothèque à côté de l'école élémentaire ?",
    ]
    tokenizer = AutoTokenizer.from_pretrained(str(bundled_folder()))
    true = [len(ids) for ids in tokenizer(texts)["input_ids"]]
    for estimate, exact in zip(estimate_tokens(texts).tolist(), true, strict=True):
        assert exact / 1.4 < estimate < exact * 1.4
    assert estimate_tokens([]).tolist() == []
