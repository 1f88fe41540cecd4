import pytest

from twinlog.client import BadArgument, tls_context


def test_tls_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(BadArgument, match=r"TLS files /no/ca.pem cannot be used"):
        tls_context(ca_file="/no/ca.pem")
    (tmp_path / "c.pem").write_text("no certificate")
    with pytest.raises(BadArgument, match=r"c.pem cannot be used"):
        tls_context(cert_file=str(tmp_path / "c.pem"))
