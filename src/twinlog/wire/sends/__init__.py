"""The headers of sends, in every spelling, as one flat form: the fast decoders of the broker's send path.

In: the bytes of a header. Out: a SendHeader's members, or None where the plain decoder must decide.
Must not raise for a header that the plain decoder accepts.
"""
