"""Bodies are read as leniently as Java reads them."""

import pytest

from twinlog.wire.bodies import HeartbeatData, decode_body
from twinlog.wire.errors import BodyError


def test_a_null_member_is_an_absent_one_at_any_depth():
    body = (
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
        b'[{"topic":"T","tagsSet":null,"codeSet":null,"expressionType":null}]},{"groupName":"H","subscriptionDataSet":null}]}'
    )
    found = decode_body(HeartbeatData, body)
    [subscription] = found.consumer_data_set[0].subscription_data_set
    assert (subscription.topic, subscription.tags_set, subscription.expression_type) == ("T", [], "TAG")
    assert found.consumer_data_set[1].subscription_data_set == []
    assert found.producer_data_set == []


@pytest.mark.parametrize("depth", [10, 63, 500, 5_000, 100_000])
def test_a_deep_body_is_an_error_of_the_body(depth):
    with pytest.raises(BodyError):
        decode_body(HeartbeatData, b'{"clientID":"c","consumerDataSet":' + b"[" * depth + b"]" * depth + b"}")
