"""Name servers: their configuration, KV entries, and the write permission of brokers."""

from __future__ import annotations

from argparse import Namespace

from twinlog.cli.admin.command import command, need
from twinlog.cli.shared.report import Report, joined, pairs, text_report
from twinlog.client import Admin

NAMESPACE, KEY = need("s", "namespace", "namespace"), need("k", "key", "key")
BROKER = need("b", "brokerName", "broker name")


@command("getNamesrvConfig", "Get the configuration of name servers")
async def get_config(admin: Admin, args: Namespace) -> Report:
    found = {address: await admin.name_server_config(address) for address in admin.session.name_servers}
    return joined([pairs(dict(sorted(values.items())), title=address) for address, values in found.items()], found)


@command("updateNamesrvConfig", "Update the configuration of name servers", KEY, need("v", "value", "its new value"))
async def update_config(admin: Admin, args: Namespace) -> Report:
    await admin.update_name_server_config({args.key: args.value})
    return text_report(
        f"update name server config success! {';'.join(admin.session.name_servers)} {args.key} : {args.value}"
    )


@command("updateKvConfig", "Create or change a KV entry", NAMESPACE, KEY, need("v", "value", "value"))
async def put_kv(admin: Admin, args: Namespace) -> Report:
    await admin.put_kv(args.namespace, args.key, args.value)
    return text_report("create or update kv config to namespace success.")


@command("deleteKvConfig", "Delete a KV entry", NAMESPACE, KEY)
async def delete_kv(admin: Admin, args: Namespace) -> Report:
    await admin.delete_kv(args.namespace, args.key)
    return text_report("delete kv config from namespace success.")


@command("getKvConfig", "Show the KV entries of a namespace", NAMESPACE)
async def get_kv(admin: Admin, args: Namespace) -> Report:
    return pairs(await admin.kv_of(args.namespace))


@command("wipeWritePerm", "Take a broker off the producers' routes", BROKER)
async def wipe(admin: Admin, args: Namespace) -> Report:
    counts = {a: await admin.wipe_write_permission(a, args.brokerName) for a in admin.session.name_servers}
    name = args.brokerName
    return text_report(
        *(f"wipe write perm of broker[{name}] in name server[{a}] OK, {n}" for a, n in counts.items()), data=counts
    )


@command("addWritePerm", "Put a broker back on the producers' routes", BROKER)
async def add(admin: Admin, args: Namespace) -> Report:
    counts = {a: await admin.add_write_permission(a, args.brokerName) for a in admin.session.name_servers}
    name = args.brokerName
    return text_report(
        *(f"add write perm of broker[{name}] in name server[{a}] OK, {n}" for a, n in counts.items()), data=counts
    )
