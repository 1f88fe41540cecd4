from twinlog.client.routing.client_id import local_ip, make_client_id

NAME_SERVER = "127.0.0.1:1"


def test_client_ids_are_unique_and_name_this_machine():
    first, second = make_client_id(NAME_SERVER), make_client_id(NAME_SERVER)
    assert first != second
    assert first.startswith("127.0.0.1@")
    assert make_client_id(NAME_SERVER, "billing-1") == "127.0.0.1@billing-1"
    assert local_ip("[::1]:9876") in ("::1", "127.0.0.1")
