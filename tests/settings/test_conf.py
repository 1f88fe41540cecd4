from dataclasses import dataclass
from typing import Literal

import pytest

from twinlog.settings.conf import conf, effective_properties, load_settings
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import parse_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    port: int = conf("haListenPort", 10912, minimum=0, maximum=65535)
    size: int = conf("mappedFileSizeCommitLog", 1 << 30, old=["mapedFileSizeCommitLog"])
    big: int = conf("big", 0, bits=64)
    ratio: float = conf("ratio", 0.5)
    role: Literal["ASYNC_MASTER", "SLAVE"] = conf("brokerRole", "ASYNC_MASTER")
    read: bool = conf("slaveReadEnable", True)
    name: str = conf("brokerName", "b")
    replicas: int | None = conf("inSyncReplicas", None)


def load(text):
    return load_settings(Sample, parse_properties(text), source="broker.conf")


def test_an_empty_file_gives_the_defaults():
    assert load("") == (Sample(), [])


def test_values_take_the_type_of_their_field():
    sample, warnings = load("haListenPort= 1 \nratio=0.25\nslaveReadEnable=FALSE\ninSyncReplicas=2\nbrokerName=  x  \n")
    assert sample == Sample(port=1, ratio=0.25, read=False, replicas=2, name="x")
    assert warnings == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("haListenPort=abc", "broker.conf:2: haListenPort=abc is not an integer; write digits only, without a unit"),
        ("haListenPort=1_0", "broker.conf:2: haListenPort=1_0 is not an integer; write digits only, without a unit"),
        ("haListenPort=70000", "broker.conf:2: haListenPort=70000 is outside 0 to 65535; choose a value in between"),
        ("brokerRole=slave", "broker.conf:2: brokerRole=slave is not one of ASYNC_MASTER, SLAVE; write SLAVE"),
        ("brokerRole=x", "broker.conf:2: brokerRole=x is not one of ASYNC_MASTER, SLAVE"),
        ("slaveReadEnable=yes", "broker.conf:2: slaveReadEnable=yes is neither true nor false; write one of them"),
        (
            "mapedFileSizeCommitLog=9999999999",
            "broker.conf:2: mapedFileSizeCommitLog=9999999999 is outside -2147483648 to 2147483647;"
            " choose a value in between",
        ),
        ("ratio=half", "broker.conf:2: ratio=half is not a number; write digits with an optional decimal point"),
    ],
)
def test_a_bad_value_refuses_to_start_and_names_its_line(line, message):
    with pytest.raises(SettingsError) as caught:
        load(f"# a comment\n{line}\n")
    assert str(caught.value) == message


def test_all_bad_values_are_reported_at_once_in_the_order_of_the_file():
    with pytest.raises(SettingsError) as caught:
        load("brokerRole=x\nhaListenPort=y\nratio=z")
    assert [problem.split(":")[1] for problem in caught.value.problems] == ["1", "2", "3"]


def test_a_long_key_takes_64_bits():
    assert load("big=9999999999")[0].big == 9_999_999_999


def test_an_old_spelling_is_accepted():
    assert load("mapedFileSizeCommitLog=4096") == (Sample(size=4096), [])


def test_a_repeated_key_warns_and_the_last_line_wins():
    sample, warnings = load("mapedFileSizeCommitLog=1\nmappedFileSizeCommitLog=2")
    assert sample.size == 2
    assert [str(warning) for warning in warnings] == [
        "broker.conf:2: mappedFileSizeCommitLog=2 replaces mapedFileSizeCommitLog=1 of line 1"
    ]


def test_an_unknown_key_warns_with_the_nearest_name():
    assert str(load("\nbrokerNmae=x")[1][0]) == (
        "broker.conf:2: brokerNmae is unknown, ignored; did you mean brokerName?"
    )
    assert str(load("BROKERNAME=x")[1][0]).endswith("did you mean brokerName?")
    assert str(load("zzz=x")[1][0]) == "broker.conf:1: zzz is unknown, ignored; check its spelling"


def test_a_key_that_only_java_reads_warns_as_not_supported():
    assert str(load("sendMessageThreadPoolNums=4")[1][0]) == (
        "broker.conf:1: sendMessageThreadPoolNums is not supported by Twinlog, ignored"
    )


@pytest.mark.parametrize(
    "line", ["migrateAuthFromV1Enabled=true", "enableDLegerCommitLog=TRUE", "storeType=defaultRocksDB"]
)
def test_a_mode_that_would_be_unsafe_to_ignore_refuses_to_start(line):
    with pytest.raises(SettingsError, match=rf"broker.conf:1: {line} .*remove the line"):
        load(line)


def test_the_same_mode_switched_off_only_warns():
    assert len(load("migrateAuthFromV1Enabled=false")[1]) == 1


def test_effective_settings_dump_as_java_text_and_leave_out_what_is_unset():
    dumped = effective_properties(Sample(read=False))
    assert dumped["slaveReadEnable"] == "false"
    assert dumped["haListenPort"] == "10912"
    assert "inSyncReplicas" not in dumped
