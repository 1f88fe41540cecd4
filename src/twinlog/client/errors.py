"""What can go wrong for a user of the client; every error says what to do next."""

import itertools

from twinlog.wire.codes import RequestCode, ResponseCode

_HINTS = {
    ResponseCode.SYSTEM_BUSY: "the broker is busy or a slave; try again in a moment",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this server does not know the request; is it an old broker?",
    ResponseCode.MESSAGE_ILLEGAL: "check the size of the message and of its properties",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker takes no writes; look at its disk and role",
    ResponseCode.NO_PERMISSION: "check the permission of the topic, of the group, and the credentials",
    ResponseCode.TOPIC_NOT_EXIST: "create it with `twinlog admin updateTopic`",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "the broker has not seen this group's heartbeat; is the consumer running?",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create it with `twinlog admin updateSubGroup`",
    ResponseCode.CONSUMER_NOT_ONLINE: "start a consumer of the group first",
}

# The answers to these name the key and what to do about it.
_SAY_IT_THEMSELVES = (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)


class ClientError(Exception):
    """Base of everything the client raises on its own account (network errors are `NetError`s)."""


class BrokerRefused(ClientError):
    """A broker or name server answered with an error code."""

    def __init__(self, request_code: int, code: int, remark: str | None, address: str) -> None:
        hint = _HINTS.get(code)  # type: ignore[call-overload]
        if request_code in _SAY_IT_THEMSELVES:
            hint = None
        text = f"{address} refused {name_of(RequestCode, request_code)} with {name_of(ResponseCode, code)}"
        told = (remark or "no remark").partition("\nSee http")[0]  # Java appends where to read on
        super().__init__(f"{text}: {told}" + (f"; {hint}" if hint else ""))
        self.request_code, self.code, self.remark, self.address = request_code, code, remark or "", address


class NoRoute(ClientError):
    """No broker is known for a topic."""

    def __init__(self, topic: str, name_servers: str, why: str = "") -> None:
        hint = f"create it with `twinlog admin updateTopic -t {topic} -c <cluster>`, or check that its broker is up"
        super().__init__(f"name server {name_servers} knows no {why or 'route'} for topic {topic!r}: {hint}")
        self.topic = topic


class BadRoute(ClientError):
    """A route that no client can use."""

    def __init__(self, topic: str, broker_name: str, queues: int, queues_max: int) -> None:
        hint = f"a client takes at most {queues_max}; lower them with `twinlog admin updateTopic -t {topic}`"
        super().__init__(f"the route of topic {topic!r} names {queues} queues of {broker_name!r}: {hint}")
        self.topic = topic


class NoMaster(NoRoute):
    """A topic whose broker has no master at the moment: it is away, or roles are being switched."""

    def __init__(self, topic: str, broker_name: str) -> None:
        ClientError.__init__(
            self,
            f"broker {broker_name!r} of topic {topic!r} has no master at the name server, so nothing can be written; "
            "start it, or make a replica master with `twinlog replication change-role`",
        )
        self.topic = topic


class NoNameServer(ClientError):
    """None of the configured name servers answers."""

    def __init__(self, addresses: str, last: object) -> None:
        super().__init__(f"no name server of {addresses} answers ({last}); is `twinlog namesrv` running there?")


class SendFailed(ClientError):
    """All attempts to send a message failed; `attempts` tells each of them."""

    def __init__(self, topic: str, attempts: list[str]) -> None:
        runs = [(text, len(list(same))) for text, same in itertools.groupby(attempts)]
        told = "; ".join(f"{i}. {text}" + (f" ({n} times)" if n > 1 else "") for i, (text, n) in enumerate(runs, 1))
        super().__init__(f"message for {topic!r} was not stored after {len(attempts)} attempts: {told}")
        self.topic, self.attempts = topic, attempts


class BadMessage(ClientError):
    """A message that no broker would take; nothing was sent."""


class BadArgument(ClientError):
    """A call that cannot be carried out as asked; nothing was sent."""


class ClientClosed(ClientError):
    """The client was used before it was started or after it was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not running: use it inside `async with`, or call start() first")


def name_of(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return f"{codes(code).name} ({code})"
    except ValueError:
        return str(code)
