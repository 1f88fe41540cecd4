"""broker.conf and namesrv.conf as frozen dataclasses; `docs/configuration.md` is made from them.

In: the text of a file, or of an admin request that changes settings. Out: settings objects, warnings, and the text to
write back. A field is a key; the comment above it is the key's meaning.
Must not know what its readers do with a setting. Imports `base` only.
"""
