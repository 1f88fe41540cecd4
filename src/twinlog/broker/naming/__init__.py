"""The name servers: what a broker registers, when, and what it learns of brokers of its own name.

In: tables and settings. Out: registrations.
Must not serve clients.
"""
