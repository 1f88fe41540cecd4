import pytest

from twinlog.client import BadArgument, BadMessage, Producer, PullConsumer, PushConsumer
from twinlog.client.name_rules import check_topic


@pytest.mark.parametrize("topic", ["", "a b", "../etc", "a/b", "x" * 128, "é"])
def test_a_topic_name_that_brokers_refuse_is_refused_before_anything_is_sent(topic):
    with pytest.raises(BadMessage, match="is not a valid name"):
        check_topic(topic)


@pytest.mark.parametrize("topic", ["T", "%RETRY%" + "g" * 248, "a-b_c|d%", "x" * 127])
def test_names_that_brokers_take_pass(topic):
    check_topic(topic)


@pytest.mark.parametrize("group", ["", "a b", "a/b", "x" * 121])
@pytest.mark.parametrize("make", [Producer, PullConsumer, lambda names, group: PushConsumer(names, group, print)])
def test_a_group_that_no_broker_takes_is_refused_before_anything_is_sent(make, group):
    with pytest.raises(BadArgument, match="is not a valid name: use 1 to 120 of a-z A-Z"):
        make("127.0.0.1:9876", group)
