"""Single values inside headers, bodies and records that have a form of their own: ids, handles, tags, bits.

In: text, numbers or bytes of one field. Out: what they mean, or an error of `wire.errors`, and back.
Must not know frames, commands or records: those are built of these values.
"""
