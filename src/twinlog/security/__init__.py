"""Who may do what: accounts, policies, signatures, and which permission each request needs.

Comes in: the code, fields and body of a request, the address it came from, and the accounts that are known.
Goes out: nothing when the request may go on, else the refusal with the remark that a Java broker gives.
This room opens no socket and starts no task; `account_file` and `plain_files` read and write the files of accounts.
It does not import net, store or metadata, so that broker and name server use the same rules.
"""
