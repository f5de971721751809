"""Endpoints: one for each code, and what their requests are about."""

from __future__ import annotations

import pytest

from cometmq.net.dispatcher import RequestDispatcher
from cometmq.net.endpoint import Endpoint, RequestResources, header_resources
from cometmq.net.handler import Reply
from cometmq.wire.command import request


def answer(_request: object, _connection: object) -> Reply:
    return Reply()


def test_a_code_with_two_endpoints_is_an_error_at_the_start() -> None:
    with pytest.raises(ValueError, match="two endpoints answer the request code 17"):
        RequestDispatcher([Endpoint(17, answer), Endpoint(18, answer), Endpoint(17, answer)])


def test_a_request_is_about_the_topic_and_the_groups_that_its_header_names() -> None:
    command = request(1, 1)
    command.ext = {"topic": "T", "consumerGroup": "C", "producerGroup": "", "b": "other"}
    assert Endpoint(1, answer).resources(command) == RequestResources(("T",), ("C",))


def test_an_endpoint_names_the_fields_itself_where_they_have_other_names() -> None:
    command = request(1, 1)
    command.ext = {"b": "T", "a": "P", "topic": "other"}
    short = header_resources(topics=("b",), groups=("a",))
    assert Endpoint(1, answer, resources=short).resources(command) == RequestResources(
        ("T",), ("P",)
    )
