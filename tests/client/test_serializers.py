"""Serializers given what they cannot write, and bodies that were cut, lengthened or mutated."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from cometmq import InvalidMessage, MessageExt, SettingsError, Topic, ValueNotDecoded
from cometmq.serializers import Avro, Pydantic, Serializer, Text, Typed

SCHEMA = {"type": "record", "name": "Trip", "fields": [{"name": "a", "type": "int"}]}


class Bill(pydantic.BaseModel):
    number: int = pydantic.Field(alias="billNumber")


class OneWay(pydantic.BaseModel):
    number: int = pydantic.Field(validation_alias="in", serialization_alias="out")


def received(body: bytes) -> MessageExt:
    return MessageExt("T", 3, 5, body, b"", 0, 0, 0, 0, 0, b"", 0, b"", 0, "b")


def test_models_with_other_names_on_the_wire_come_back() -> None:
    bills = Topic("T", Pydantic(Bill))
    body = bills.message(Bill(billNumber=7)).body
    assert body == b'{"billNumber":7}'
    assert bills.value(received(body)) == Bill(billNumber=7)


def test_a_model_that_its_own_type_could_not_read_is_not_sent() -> None:
    changed = Bill(billNumber=7)
    changed.number = "seven"  # type: ignore[assignment]
    with (
        pytest.warns(UserWarning, match="serialized value may not be as expected"),
        pytest.raises(InvalidMessage, match="billNumber"),
    ):
        Topic("T", Pydantic(Bill)).message(changed)
    with pytest.raises(InvalidMessage, match="Field required"):
        Topic("T", Pydantic(OneWay)).message(OneWay.model_validate({"in": 1}))


@pytest.mark.parametrize("make", [lambda body: body + b"more", lambda body: body[:-1]])
def test_a_record_of_avro_ends_with_its_body(make: Any) -> None:
    trips = Topic("T", Avro(SCHEMA))
    body = trips.message({"a": 1_000}).body
    assert trips.value(received(body)) == {"a": 1_000}
    with pytest.raises(ValueNotDecoded, match=r"cannot be read by Avro: \w+"):
        trips.value(received(make(body)))


@pytest.mark.parametrize("schema", ["string", ["null", "string"], {"type": "nonsense"}, {}, None])
def test_what_is_no_schema_is_said(schema: Any) -> None:
    with pytest.raises(SettingsError, match="a schema of Avro is"):
        Avro(schema)
    with pytest.raises(SettingsError, match="a schema of Avro is"):
        Avro(SCHEMA, older=[schema])


@pytest.mark.parametrize(
    ("serializer", "value", "said"),
    [(Text(), b"bytes", "it is bytes, not str"), (Text(), None, "it is NoneType, not str")],
)
def test_a_value_of_another_type_is_named(
    serializer: Serializer[Any], value: object, said: str
) -> None:
    with pytest.raises(InvalidMessage, match=said):
        Topic("T", serializer).message(value)


class Silent(Typed[int]):
    def encode(self, value: int) -> bytes:
        raise ZeroDivisionError

    def decode(self, body: bytes) -> int:
        raise ZeroDivisionError


def test_an_error_without_text_is_named_by_its_type() -> None:
    numbers = Topic("T", Silent(int))
    with pytest.raises(InvalidMessage, match=r"Typed\(int\): ZeroDivisionError"):
        numbers.message(1)
    with pytest.raises(ValueNotDecoded, match=r"Typed\(int\): ZeroDivisionError"):
        numbers.value(received(b"1"))
