"""Texts of other libraries' errors are passed on without what they may quote."""

import pytest

from trainwright.storage.errors import StorageError
from trainwright.storage.objects.connection import obstore_errors
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import without_credentials

CANARY = "canary9f1c"


@pytest.mark.parametrize(
    "text",
    [
        f"Error performing PUT https://user:{CANARY}@host/bucket/key in 1s",
        f"401 Client Error for url: https://host/x?X-Amz-Signature={CANARY}&a=b",
        f"sent Authorization: {CANARY} and failed",
        f"header Bearer {CANARY}",
        f"Authorization: Bearer {CANARY}",
        f"X-Amz-Security-Token: {CANARY}",
        f"first line\n{CANARY}",
        "x" * 5000 + CANARY,
    ],
)
def test_credentials_do_not_remain(text: str) -> None:
    assert CANARY not in without_credentials(ValueError(text))


def test_harmless_text_is_kept() -> None:
    assert without_credentials(OSError("Error performing PUT https://host/b/key: \x1b[31mno route")) == (
        "Error performing PUT https://host/b/key: [31mno route"
    )
    assert without_credentials(KeyError()) == "KeyError"


def test_the_error_of_a_store_is_not_chained_to_the_one_that_quotes_the_request() -> None:
    with pytest.raises(StorageError) as caught, obstore_errors(StorageUri.parse("s3://bucket/key")):
        raise ValueError(f"<StringToSign>{CANARY}</StringToSign> at https://u:{CANARY}@host")
    error: BaseException | None = caught.value
    assert error is not None
    assert error.__cause__ is None
    assert error.__suppress_context__
