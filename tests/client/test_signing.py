from twinlog.client.signing import Credentials, sign, signature
from twinlog.wire.command import Command


def test_a_signature_covers_the_values_in_the_order_of_their_names_and_then_the_body():
    # Made with: printf Tb123 | openssl dgst -sha1 -hmac secret -binary | base64
    assert signature({"c": "b", "b": "T"}, b"123", "secret") == signature({"b": "T", "c": "b"}, b"123", "secret")
    assert signature({"b": "T", "c": "b"}, b"123", "secret") == "wys9egFpOFNwcPNKqb/tTI+d1Yo="


def test_a_signed_command_names_its_key_and_a_changed_one_does_not_match():
    command = Command(310, fields={"b": "Topic"}, body=b"body")
    sign(command, Credentials("key", "secret"))
    assert command.fields is not None
    assert command.fields["AccessKey"] == "key"
    assert command.fields["Signature"] == signature(command.fields, b"body", "secret")
    assert command.fields["Signature"] != signature(command.fields, b"other", "secret")
    assert "SecurityToken" not in command.fields


def test_a_security_token_is_signed_too():
    command = Command(310, fields={})
    sign(command, Credentials("key", "secret", "token"))
    assert command.fields is not None
    assert command.fields["SecurityToken"] == "token"
    assert command.fields["Signature"] == signature({"AccessKey": "key", "SecurityToken": "token"}, None, "secret")


def test_secrets_do_not_show_in_a_printed_value():
    assert "hidden" not in repr(Credentials("key", "hidden", "hidden"))
