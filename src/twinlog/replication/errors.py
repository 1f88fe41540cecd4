"""Why a link between master and replica ends, or is not begun."""


class ReplicationError(Exception):
    """A link that cannot continue; the replica reconnects, or waits for its operator."""


class OffsetMismatch(ReplicationError):
    """The master's next byte is not the replica's next byte."""

    def __init__(self, *, replica: int, master: int) -> None:
        hint = "the replica is ahead; compare both logs before it rejoins"
        if replica < master:
            hint = "bytes between them are missing; reconnecting asks for them again"
        super().__init__(f"replica ends at {replica}, master sends from {master}: {hint}")


class TransferError(ReplicationError):
    """A transfer header that no master writes."""


class ReportError(ReplicationError):
    """A report that cannot be true; nothing is acknowledged by it."""


class PeerSilent(ReplicationError):
    def __init__(self, peer: str, silence_ms: int) -> None:
        super().__init__(f"nothing received from {peer} for {silence_ms} ms; the connection is closed")


class JoinRefused(ReplicationError):
    """Master and replica must not be joined as they are; the operator decides what is lost."""


class IdentityTaken(ReplicationError):
    """Another broker is registered with this one's name and id, and it answers."""

    def __init__(self, broker_name: str, broker_id: int, rival: str) -> None:
        what = "two masters would acknowledge messages into different logs" if broker_id == 0 else "ids are unique"
        super().__init__(
            f"{broker_name} with brokerId={broker_id} is running at {rival}: {what}; stop that broker, or start this "
            "one as its replica (brokerRole=SLAVE with a free brokerId)"
        )
