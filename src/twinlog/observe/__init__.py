"""Views of a running cluster, Twinlog's or Java's: what dashboard, exporter, `top`, `diagnose` and `doctor` look at.

`cluster` has all brokers, `groups` consumer groups, `messages` messages, `replicas` a replica beside its master; here
are topics, their traffic, and how numbers and findings look.
In: answers of name servers and brokers, asked through `client.admin`. Out: values with units, None where something is
unknown.
Must not print, and must not know any page, terminal or metrics format.
"""
