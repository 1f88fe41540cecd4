"""What can go wrong for a user of the client; every error names the next step."""

import itertools

from twinlog.net.errors import ConnectFailed, NetError
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError

_HINTS = {
    ResponseCode.SYSTEM_BUSY: "the broker is busy or a slave; try again in a moment",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this server does not support the request; is it an old broker?",
    ResponseCode.MESSAGE_ILLEGAL: "check the size of the message and of its properties",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker takes no writes; check its disk and role",
    ResponseCode.NO_PERMISSION: "check the permission of the topic, of the group, and the credentials",
    ResponseCode.TOPIC_NOT_EXIST: "create it with `twinlog admin updateTopic`",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "the broker has not seen this group's heartbeat; is the consumer running?",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create it with `twinlog admin updateSubGroup`",
    ResponseCode.CONSUMER_NOT_ONLINE: "start a consumer of the group first",
}

# The remarks on these requests name the key and the next step themselves.
_REQUEST_HINTS = {
    RequestCode.RECALL_MESSAGE: "a broker recalls with recallMessageEnable=true, and only what is not delivered yet",
}
_NO_HINT_NEEDED = (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)


class ClientError(Exception):
    """Base of all errors that the client raises itself (network errors are `NetError`s)."""


# What a request to a server may raise: no connection, a refusal, or an answer that cannot be read.
REQUEST_FAILURES = (NetError, ClientError, WireError)


class BrokerRefused(ClientError):
    """A broker or name server answered with an error code."""

    def __init__(self, request_code: int, code: int, remark: str | None, address: str) -> None:
        hint = _REQUEST_HINTS.get(request_code) or _HINTS.get(code)  # type: ignore[call-overload]
        if request_code in _NO_HINT_NEEDED:
            hint = None
        text = f"{address} refused {name_of(RequestCode, request_code)} with {name_of(ResponseCode, code)}"
        reason = (remark or "no remark").partition("\nSee http")[0]  # Java appends the address of a document
        super().__init__(f"{text}: {reason}" + (f"; {hint}" if hint else ""))
        self.request_code, self.code, self.remark, self.address = request_code, code, remark or "", address


class NoRoute(ClientError):
    """No broker is known for a topic."""

    def __init__(self, topic: str, name_servers: str, why: str = "") -> None:
        hint = f"create it with `twinlog admin updateTopic -t {topic} -c <cluster>`, or check that its broker is up"
        super().__init__(f"name server {name_servers} has no {why or 'route'} for topic {topic!r}: {hint}")
        self.topic = topic


class BadRoute(ClientError):
    """A route that no client can use."""

    def __init__(self, topic: str, broker_name: str, queues: int, queues_max: int) -> None:
        hint = f"a client takes at most {queues_max}; lower them with `twinlog admin updateTopic -t {topic}`"
        super().__init__(f"the route of topic {topic!r} names {queues} queues of {broker_name!r}: {hint}")
        self.topic = topic


class NoMaster(NoRoute):
    """The broker of a topic has no master at the moment: it is stopped, or roles are being switched."""

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
        why = last.problem if isinstance(last, ConnectFailed) else last
        super().__init__(f"no name server of {addresses} answers ({why}); is `twinlog namesrv` running there?")
        self.last = last


class SendFailed(ClientError):
    """All attempts to send a message failed; `attempts` has the reason of each."""

    def __init__(self, topic: str, attempts: list[str]) -> None:
        runs = [(text, len(list(same))) for text, same in itertools.groupby(attempts)]
        reasons = "; ".join(f"{i}. {text}" + (f" ({n} times)" if n > 1 else "") for i, (text, n) in enumerate(runs, 1))
        super().__init__(f"message for {topic!r} was not stored after {len(attempts)} attempts: {reasons}")
        self.topic, self.attempts = topic, attempts


class BatchPartlySent(ClientError):
    """Some requests of a large batch were stored, and then one failed; `sent` is the result of those before it."""

    def __init__(self, sent: object, messages: int, error: Exception) -> None:
        ids = getattr(sent, "message_id", "")
        self.sent, self.stored = sent, ids.count(",") + 1
        super().__init__(
            f"the first {self.stored} of {messages} messages are stored, the next request failed: {error}; "
            "send the others again"
        )


class BadMessage(ClientError):
    """A message that no broker would accept; nothing was sent."""


class BadArgument(ClientError):
    """A call that cannot be carried out as asked; nothing was sent."""


class ClientClosed(ClientError):
    """The client was used before it was started or after it was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not running: use it inside `async with`, or call start() first")


def name_of(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    """`SYSTEM_BUSY (2)`, or the number alone for a code that is not known here."""
    try:
        return f"{codes(code).name} ({code})"
    except ValueError:
        return str(code)
