"""Addresses, and the settings of S3A as users know them."""

from pathlib import Path

import pytest

from twinlog.spark.errors import BadOption
from twinlog.spark.lake.address import Address, is_lake, parse_address
from twinlog.spark.lake.s3_settings import S3Settings, s3_settings


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("s3://bucket/a//b/", "s3a://bucket/a/b"),
        ("S3A://bucket", "s3a://bucket"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a"),
        ("hdfs:/a", "hdfs:///a"),
        ("abfs://container@account/a", "abfs://container@account/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("oss://bucket/a", "oss://bucket/a"),
        ("file:///a/b/", "/a/b"),
        (Path("/a/b"), "/a/b"),
        ("/", "/"),
    ],
)
def test_an_address_has_one_form(given, text):
    found = parse_address(given, "--to")
    assert str(found) == text
    assert parse_address(str(found), "--to") == found
    assert is_lake(given, "--to") == (":" in text)
    assert str(found / "x/y").endswith("/x/y")


def test_names_and_parents():
    place = parse_address("s3a://bucket/a/b", "--to")
    assert (place.name, str(place.parent), place.parent.parent) == ("b", "s3a://bucket/a", Address("s3a", "bucket", ""))
    assert place.parent.parent.name == "bucket"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("s3a:///a", "names no bucket"),
        (Path("s3a://bucket/a"), "as text and not as a pathlib.Path"),
        ("s3a://key:secret@bucket/a", "without keys and ports"),
        ("gs://bucket/../a", r"without \. and \.\."),
        ("", "the path is empty"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(given, told):
    with pytest.raises(BadOption, match=f"--to.*{told}"):
        parse_address(given, "--to")


def settings(environment=None, /, **given):
    found = {f"fs.s3a.{name.replace('_', '.')}": value for name, value in given.items()}
    return s3_settings(found.get, "lake", environment or {})


def test_settings_of_s3a_become_those_of_the_client():
    found = settings(
        access_key="a",
        secret_key="s",
        session_token="t",
        endpoint="minio:9000",
        connection_ssl_enabled="false",
        path_style_access="true",
        attempts_maximum="7",
        connection_timeout="90s",
        connection_establish_timeout="1500",
    )
    assert found == S3Settings(
        "a", "s", "t", endpoint="http://minio:9000", path_style=True, attempts_max=7, connect_s=1.5, read_s=90.0
    )
    assert "'s'" not in repr(found) and "'t'" not in repr(found)
    assert settings(endpoint="minio").endpoint == "https://minio"
    one = {"bucket_lake_endpoint": "http://one", "endpoint": "http://all", "bucket_other_endpoint": "http://other"}
    assert settings(**one).endpoint == "http://one"


def test_the_environment_is_used_where_settings_are_silent():
    aws = {"AWS_ENDPOINT_URL": "http://e", "AWS_REGION": "eu-west-1"}
    assert (settings(aws).endpoint, settings(aws).region) == ("http://e", "eu-west-1")
    assert settings(aws, endpoint="http://mine").endpoint == "http://mine"
    assert settings({**aws, "AWS_ENDPOINT_URL_S3": "http://s3"}).endpoint == "http://s3"


def test_providers_of_java_are_understood_or_refused():
    package = "org.apache.hadoop.fs.s3a."
    assert settings(aws_credentials_provider=f"{package}AnonymousAWSCredentialsProvider").anonymous
    usual = f"{package}TemporaryAWSCredentialsProvider, software.amazon.awssdk.x.EnvironmentVariableCredentialsProvider"
    assert not settings(aws_credentials_provider=usual).anonymous
    with pytest.raises(BadOption, match=r"s3a://lake: .*com\.example\.Mine is a class of Java; give keys"):
        settings(aws_credentials_provider="com.example.Mine")
    assert settings(aws_credentials_provider="com.example.Mine", access_key="a", secret_key="s").access_key == "a"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"access_key": "a"}, r"fs\.s3a\.secret\.key is missing"),
        ({"secret_key": "a"}, r"fs\.s3a\.access\.key is missing"),
        ({"attempts_maximum": "0"}, "is not a number from 1"),
        ({"connection_timeout": "soon"}, "is not a time: write for example 30s"),
    ],
)
def test_a_setting_without_a_meaning_is_named(given, told):
    with pytest.raises(BadOption, match=told):
        settings(**given)
