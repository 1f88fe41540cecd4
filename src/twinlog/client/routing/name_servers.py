"""The list of name servers that a client is given as text."""

from twinlog.base.addresses import AddressError, parse_address, split_addresses
from twinlog.client.errors import BadArgument


def parse_name_servers(text: str) -> list[str]:
    """The addresses in `text`, which are separated by `;` or `,`."""
    addresses = split_addresses(text.replace(",", ";"))
    if not addresses:
        raise BadArgument("no name server address: give host:port, several separated by ';'")
    for address in addresses:
        try:
            parse_address(address)
        except AddressError as error:
            raise BadArgument(f"name server {error}") from error
    return addresses
