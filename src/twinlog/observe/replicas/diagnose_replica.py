"""Why does a replica not follow its master? Rules over ReplicaFacts; each finding has the next step. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from twinlog.observe.findings import Finding, fine, note, problem, sorted_findings
from twinlog.observe.replicas.replica_facts import BrokerFacts, ReplicaFacts

_DISK_SHARE_MAX = 0.90  # a broker stops writing from here on
_SKEW_MS_MAX = 1_000
_SILENT_TWICE_MS = 30_000  # metadata is synchronised every 10 s


def diagnose_replica(facts: ReplicaFacts) -> list[Finding]:
    """The most urgent finding first; never empty."""
    if facts.replica.member.kind == "silent":
        return [_silent(facts)]
    rules = (_registration, _refusal, _ha_address, _tls, _link, _disk, _clock, _versions, _metadata, _lag)
    found = list(_master(facts))
    if found:  # what else cannot be reached follows from it
        rules = (_registration, _refusal, _disk, _clock, _versions)
    found += [finding for rule in rules for finding in rule(facts)]
    if not any(one.todo for one in found):
        lag = facts.lag
        behind = "" if lag is None or lag.bytes is None else f", {lag.bytes} bytes behind"
        found.append(fine(f"nothing is wrong: it follows {_address(facts.master)}{behind}"))
    return sorted_findings(found)


def _silent(facts: ReplicaFacts) -> Finding:
    return problem(
        "it does not answer", "start it, or read its log for the reason", facts.replica.member.error or "no answer"
    )


def _registration(facts: ReplicaFacts) -> Iterator[Finding]:
    if not facts.is_registered:
        given = facts.replica.config.get("namesrvAddr", "")
        yield problem(
            f"it is not registered with {facts.name_servers}, so clients and tools do not see it",
            f"set namesrvAddr={facts.name_servers} in its broker.conf, and start it again"
            if given != facts.name_servers
            else "see its log for registrations that fail, and that its brokerId is not taken",
            f"its namesrvAddr is {given or 'empty'}",
        )


def _master(facts: ReplicaFacts) -> Iterator[Finding]:
    if facts.name not in facts.masters:
        nearest = difflib.get_close_matches(facts.name, facts.masters, n=1, cutoff=0.6)
        others = ", ".join(facts.masters) or "none"
        yield problem(
            f"the name servers have no master {facts.name!r}" + (f"; is it {nearest[0]!r}?" if nearest else ""),
            "start the master, or give the replica the brokerName of its master; if the master is lost, the replica "
            "with the longest log (LogEnd in `twinlog replication status`) becomes master with "
            f"`twinlog replication change-role -b {facts.replica.member.address} --role ASYNC_MASTER`",
            f"names with a master: {others}",
        )
    elif facts.master is not None and facts.master.member.kind == "silent":
        yield problem(
            f"its master {facts.master.member.address} does not answer",
            "start the master, or make the replica with the longest log master with `twinlog replication change-role`",
            facts.master.member.error,
        )


def _refusal(facts: ReplicaFacts) -> Iterator[Finding]:
    following = facts.replica.member.document.get("following", {})
    reason = following.get("reason") or ""
    if following.get("state") != "refused":
        return
    what, todo = "it refuses to join its master", "do what the reason says"
    if "haSharedSecret" in reason:
        what = "master and replica do not have the same secret"
        todo = "set the same haSharedSecret in all brokers of this name, and start them again"
    elif "epoch" in reason:
        what = "its master is older than the one that it has followed"
        todo = "start the newest master, or do what the reason says"
    elif "differ" in reason or "ahead" in reason or "beyond" in reason:
        what = "its log is not a beginning of its master's log"
        todo = "do what the reason says: the tail is set aside, never deleted; `twinlog store resend` sends it again"
    yield problem(what, todo, reason, f"refused {following.get('refusals', 0)} times")


def _ha_address(facts: ReplicaFacts) -> Iterator[Finding]:
    """haMasterAddress, if it is set, overrides what the name servers say."""
    given, master = facts.replica.config.get("haMasterAddress"), facts.master
    real = master.ha_address if master is not None else None
    if given and real and given != real and not _is_following(facts):
        yield problem(
            f"haMasterAddress of the replica is {given}, and its master listens on {real}",
            "remove haMasterAddress, so that the name servers tell it, or correct it",
        )
    elif facts.ha_error and not _is_following(facts):
        yield problem(
            "the master's HA port cannot be reached (tried from this machine)",
            "see that the master runs, that haListenPort and brokerIP2 of the master are right, and that no "
            "firewall is between them",
            facts.ha_error,
        )


def _tls(facts: ReplicaFacts) -> Iterator[Finding]:
    if facts.master is None or _is_following(facts):
        return
    here, there = (one.config.get("haTlsEnable", "false") for one in (facts.replica, facts.master))
    reason = facts.replica.member.document.get("following", {}).get("reason") or ""
    required = facts.master.config.get("haTlsRequired") == "true"
    if here != there or (required and here != "true"):
        yield problem(
            "one of master and replica uses TLS on the HA port, the other does not",
            "set haTlsEnable alike in both, with certificates that they trust (`twinlog tls init` makes them)",
            f"haTlsEnable: replica {here}, master {there}" + (", haTlsRequired=true" if required else ""),
        )
    elif "certificate" in reason.lower() or "ssl" in reason.lower():
        yield problem(
            "the certificate of the master is not accepted",
            "see tls.client.trustCertPath of the replica, and names and dates of the master's certificate",
            reason,
        )


def _link(facts: ReplicaFacts) -> Iterator[Finding]:
    following = facts.replica.member.document.get("following", {})
    refused = facts.master.member.document.get("refusedConnections", 0) if facts.master is not None else 0
    state = following.get("state")
    if state in (None, "refused", "following") or facts.name not in facts.masters:
        return
    evidence = [following.get("reason") or "no reason is known"]
    evidence += [f"its master has refused {refused} connections"] if refused else []
    yield problem(
        f"it is not connected to its master ({state})",
        "see the logs of both; a master with haReplicasFrom or haSharedSecret refuses strangers"
        if refused
        else "if it stays, see the logs of both",
        *evidence,
    )


def _disk(facts: ReplicaFacts) -> Iterator[Finding]:
    for who, one in (("the replica", facts.replica), ("the master", facts.master)):
        try:
            share = float(one.runtime["commitLogDiskRatio"]) if one is not None else 0.0
        except (KeyError, ValueError):
            continue
        if share >= _DISK_SHARE_MAX:
            yield problem(
                f"the disk of {who} is full",
                "free space, or lower fileReservedTime; a full disk takes no messages",
                f"{100 * share:.0f} % used; nothing is written from {100 * _DISK_SHARE_MAX:.0f} % on",
            )


def _clock(facts: ReplicaFacts) -> Iterator[Finding]:
    times = [one.member.document.get("nowMs") for one in (facts.replica, facts.master) if one is not None]
    known = [one for one in times if one is not None]
    if len(known) == 2 and abs(known[0] - known[1]) > _SKEW_MS_MAX:
        yield note(
            f"the clocks of master and replica differ by {abs(known[0] - known[1]) / 1000:.1f} s",
            "run a time service (chrony, ntpd) on both: the lag in seconds and delayed messages depend on it",
        )


def _versions(facts: ReplicaFacts) -> Iterator[Finding]:
    if facts.master is None:
        return
    ours, theirs = _version(facts.replica), _version(facts.master)
    if ours and theirs and ours != theirs:
        yield note(
            f"the replica runs {ours}, its master {theirs}",
            "nothing to do if it follows; the same version on both is tested best",
        )


def _metadata(facts: ReplicaFacts) -> Iterator[Finding]:
    document = facts.replica.member.document
    failing: dict[str, list[str]] = {}
    for kind, status in document.get("metadata", {}).items():
        if status["error"]:
            failing.setdefault(status["error"], []).append(kind)
    for error, kinds in failing.items():
        yield problem(
            f"{', '.join(kinds)} are not synchronised",
            "see the replica's log; with accounts it needs innerClientAuthenticationCredentials",
            error,
        )
    for kind, status in document.get("metadata", {}).items():
        age_ms = document["nowMs"] - status["syncedMs"] if status["syncedMs"] else None
        if status["error"]:
            continue
        if age_ms is not None and age_ms > _SILENT_TWICE_MS and _is_following(facts):
            yield note(f"{kind} were last synchronised {age_ms // 1000} s ago", "see the replica's log")


def _lag(facts: ReplicaFacts) -> Iterator[Finding]:
    lag = facts.lag
    if lag is None or not _is_following(facts):
        return
    if lag.counted_out:
        yield problem(
            "it does not keep up: its master does not wait for it any more",
            "look at disk and network of the replica: `twinlog replication status --watch` shows the rate",
            f"{lag.bytes} bytes behind",
        )
    elif lag.in_sync is False:
        rate = "" if lag.bytes_per_second is None else f", {lag.bytes_per_second / 1048576:.1f} MiB/s"
        yield note(
            "it catches up",
            "wait: `twinlog replication status --watch` shows the time left",
            f"{lag.bytes} bytes behind{rate}",
        )


def _is_following(facts: ReplicaFacts) -> bool:
    state = facts.replica.member.document.get("following", {}).get("state")
    if state is None and facts.lag is not None:  # a Java replica does not say
        return facts.lag.in_sync is not False
    return state == "following"


def _version(one: BrokerFacts) -> str:
    own = one.runtime.get("twinlogVersion")
    return f"Twinlog {own}" if own else one.runtime.get("brokerVersionDesc", "")


def _address(one: BrokerFacts | None) -> str:
    return "its master" if one is None else one.member.address
