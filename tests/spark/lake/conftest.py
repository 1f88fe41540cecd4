"""One S3 server for all tests of this folder."""

import pytest


@pytest.fixture(scope="session")
def s3():
    pytest.importorskip("moto", reason="the S3 server of the tests: pip install 'moto[server]'")
    from tests.spark.lake.s3_server import s3_server

    with s3_server() as server:
        yield server
