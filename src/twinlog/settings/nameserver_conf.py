"""namesrv.conf: the name server's settings and those of its connections in one flat file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.settings.access import AccessSettings, check_access
from twinlog.settings.broker_conf import load_tls_file, read_text
from twinlog.settings.conf import SettingsWarning, load_together, public_properties
from twinlog.settings.errors import SettingsError
from twinlog.settings.nameserver import NameServerSettings
from twinlog.settings.net import NetSettings, TlsSettings
from twinlog.settings.properties import Entry, parse_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConf:
    nameserver: NameServerSettings = dataclasses.field(default_factory=NameServerSettings)
    net: NetSettings = dataclasses.field(default_factory=NetSettings)
    access: AccessSettings = dataclasses.field(default_factory=AccessSettings)
    warnings: tuple[SettingsWarning, ...] = ()

    def properties(self) -> dict[str, str]:
        """All settings in use under their file names; passwords are left out."""
        return public_properties(self.nameserver, self.net, self.net.tls, self.access)


def load_nameserver_conf(
    path: str | os.PathLike[str] | None = None, *, text: str | None = None, overrides: Mapping[str, str] | None = None
) -> NameServerConf:
    """Read `path` (or `text`); `overrides` come from the command line and win over the file."""
    source = os.path.basename(path) if path is not None else "namesrv.conf"
    if text is None:
        text = "" if path is None else read_text(path)
    entries = parse_properties(text, source=str(source))
    if path is not None and not any(entry.key == "configStorePath" for entry in entries):
        entries.append(Entry("configStorePath", os.fspath(path), 0))  # updates go back into the file they came from
    entries = [entry for entry in entries if entry.key not in (overrides or {})]
    entries += [Entry(key, value, 0) for key, value in (overrides or {}).items()]
    (nameserver, net, tls, access), warnings = load_together(
        (NameServerSettings, NetSettings, TlsSettings, AccessSettings), entries, source=str(source)
    )
    check_access(access, str(source))
    if access.plain_acl:
        raise SettingsError(f"{source}: aclEnable=true is for brokers; a name server has authenticationEnabled")
    tls, tls_warnings = load_tls_file(tls)
    net = dataclasses.replace(net, tls=tls)
    return NameServerConf(nameserver=nameserver, net=net, access=access, warnings=(*warnings, *tls_warnings))
