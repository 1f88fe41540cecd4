"""Message properties: `name U+0001 value U+0002`, repeated."""

from collections.abc import Mapping
from functools import lru_cache

from twinlog.wire.errors import PropertiesError

NAME_END = "\x01"
PAIR_END = "\x02"
KEY_SEPARATOR = " "
PROPERTIES_BYTES_MAX = 32767

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
CLUSTER = "CLUSTER"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CRC32 = "__CRC32#"
SHARDING_KEY = "__SHARDINGKEY"
POP_CK = "POP_CK"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
INSTANCE_ID = "INSTANCE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

# Names that RocketMQ keeps for itself: Java's client refuses them as properties of a user, and so does ours.
RESERVED = frozenset(
    """
    1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG CORRELATION_ID DELAY
    DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS
    MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG MSG_REGION MSG_TYPE ORIGIN_GROUP ORIGIN_MESSAGE_ID PGROUP
    POP_CK POP_CK_OFFSET PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS
    TIMER_DELAY_LEVEL TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS
    TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON TRANSFER_FLAG TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TTL
    UNIQ_KEY WAIT _SYS_MSG_PRIORITY_ __BORNHOST __CRC32# __LITE_TOPIC
    """.split()
)


def decode_properties(data: bytes | memoryview | str) -> dict[str, str]:
    """The pairs in `data`. As in Java, a pair without name or without value vanishes and the last one wins."""
    text = data if isinstance(data, str) else str(data, "utf-8", "replace")
    pairs: dict[str, str] = {}
    for piece in text.split(PAIR_END):
        name, found, value = piece.partition(NAME_END)
        if found and name and value:
            pairs[name] = value
    return pairs


def property_value(data: bytes | memoryview, name: str) -> str | None:
    """What `decode_properties` finds under `name`, without decoding the other pairs."""
    data, start = bytes(data), _start_of(name)
    at = data.rfind(start)  # the last pair of a name wins
    if at < 0 and not data.startswith(start[1:]):
        return None
    begin = at + len(start)  # without a separator in front of the text's first pair, `at` is -1: where it would be
    end = data.find(b"\x02", begin)
    value = data[begin:] if end < 0 else data[begin:end]
    return value.decode("utf-8", "replace") if value else decode_properties(data).get(name)


@lru_cache(maxsize=64)
def _start_of(name: str) -> bytes:
    return f"{PAIR_END}{name}{NAME_END}".encode()


def encode_properties(pairs: Mapping[str, str]) -> bytes:
    """The text form of `pairs`, with a closing separator after every pair as 5.x writes it."""
    return "".join(f"{name}{NAME_END}{value}{PAIR_END}" for name, value in pairs.items()).encode()


def check_pairs(pairs: Mapping[str, str]) -> None:
    """Raise PropertiesError for a name or value that the text form cannot carry."""
    for name, value in pairs.items():
        if not name or NAME_END in name or PAIR_END in name:
            raise PropertiesError(f"property name {name!r} is empty or holds a separator; choose another name")
        if PAIR_END in value:
            raise PropertiesError(f"property {name}={value!r} holds the separator U+0002; remove it")
