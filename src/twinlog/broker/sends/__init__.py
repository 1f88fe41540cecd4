"""Sends: checks, parking, the append, and the answer, which may have to wait.

In: send requests. Out: records in the store, answers once they are as safe as the settings ask.
`send_fast` handles the usual send, `send` every other one: send_checks -> parking (with timer_rules) -> the store ->
put_errors or pending_sends (with wait_queue). `send_back` and `reply` are sends by consumers.
Must not read messages for consumers, and must not deliver what it parks: `deferred` does.
"""
