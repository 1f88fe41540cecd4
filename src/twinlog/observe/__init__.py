"""Views of a running cluster, Twinlog's or Java's: what dashboard, exporter, `top`, `diagnose` and `doctor` look at.

In: answers of name servers and brokers, asked through `client.admin`. Out: values with units, None where something is
unknown. Two operations that need such views stand here as well: the comparison of two logs (`log_compare`) and the
planned switch (`planned_switch`).
Must not print, and must not know any page, terminal or metrics format.
"""
