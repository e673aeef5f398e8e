"""What an account of the RPC port may do at a running queue manager, and how fast its password can be guessed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from remote_kit import Served, any_name, bodies, move, opened

from srmp_spark.errors import ConfigurationError, RemoteLostError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    HandleRequest,
    OpenRequest,
)
from srmp_spark.mqrr.remote_host import parse_remote_host
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.trust.rpc_accounts import RpcAccount, RpcAccounts, parse_rpc_accounts
from srmp_spark.signing_in.accounts import Account
from srmp_spark.signing_in.credentials import credentials
from srmp_spark.signing_in.ntlm_crypto import nt_hash

PASSWORDS = {"looker": "see nothing else", "receiver": "take some", "cleaner": "take all"}
DENIED = Status.MQ_ERROR_ACCESS_DENIED


def secret(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def configuration(folder: Path) -> Path:
    password = {user: secret(folder, user, text) for user, text in PASSWORDS.items()}
    hashed = secret(folder, "hash", nt_hash(PASSWORDS["receiver"]).hex())
    path = folder / "serve.toml"
    path.write_text(f"""
[[rpc_account]]
name = 'EXAMPLE\\looker'
password_file = "{password["looker"]}"
queues = ["private$/orders"]
verbs = ["peek"]

[[rpc_account]]
name = '.\\receiver'
nt_hash_file = "{hashed}"
queues = ["private$/orders"]
verbs = ["receive"]

[[rpc_account]]
name = 'EXAMPLE\\cleaner'
password_file = "{password["cleaner"]}"
verbs = ["receive", "purge"]
queues = ["private$/o*"]
""")
    return path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    queues = ["private$/orders", "private$/salaries"]
    with Served(folder / "data", config=configuration(folder), queues=queues) as served:
        yield served


def sign_in(served: Served, user: str, password: str = ""):
    host = parse_remote_host("test", served.ready["rpc"])
    found = credentials(
        "test", host, level="privacy", protocol=None, user=user,
        password=password or PASSWORDS[user], domain="example",
    )  # fmt: skip
    return served.machine(found.settings(host))


def test_an_account_opens_the_queues_that_are_listed_and_no_others(guarded: Served):
    guarded.send("private$/orders", 3)
    guarded.send("private$/salaries", 3)
    with sign_in(guarded, "looker") as looker:
        with opened(looker, "private$/orders") as queue:
            assert bodies(queue) == ["body 1"]
        for name in ("private$/salaries", "private$/not-there", "private$/order_queue$"):
            with pytest.raises(RemoteReadError) as refused:
                opened(looker, name)
            assert refused.value.status == DENIED
        with pytest.raises(RemoteReadError) as refused:
            opened(looker, "private$/orders", receive=True)
        assert refused.value.status == DENIED
    guarded.client.purge("private$/orders")


def cpu_of(process: int) -> float:
    """Seconds of the processor that the main thread has used."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def test_names_that_are_not_there_cost_as_little_as_those_that_are_forbidden(tmp_path: Path):
    """Which queues there are is told neither by an answer nor by its time, and no caller buys much work with a made-up name."""
    forbidden = [f"private$/department-{n:03d}-{'abcdefgh' * 10}" for n in range(500)]
    used, calls = {}, 60
    with (
        Served(
            tmp_path / "data",
            config=configuration(tmp_path),
            queues=["private$/orders", *forbidden],
        ) as served,
        sign_in(served, "looker") as looker,
    ):
        assert served.process is not None
        for kind, ending in (("there", ""), ("not there", "x")):
            before = cpu_of(served.process.pid)
            for name in forbidden[:calls]:
                with pytest.raises(RemoteReadError) as refused:
                    opened(looker, name + ending)
                assert refused.value.status == DENIED
            used[kind] = cpu_of(served.process.pid) - before
    assert used["not there"] < 2 * used["there"] + 0.1, used


def test_who_may_receive_may_not_purge_and_who_may_purge_does(guarded: Served):
    guarded.send("private$/orders", 3, 3)
    with sign_in(guarded, "receiver") as machine:
        with opened(machine, "private$/orders", receive=True) as queue:
            request, answer = queue.start(Action.RECEIVE)
            assert answer.status == Status.MQ_OK
            queue.end(request)
            assert queue.peek() is not None
            assert machine.call(6, HandleRequest(queue.handle)).status == DENIED
        assert guarded.waiting("private$/orders") == 1
    with sign_in(guarded, "cleaner") as machine:
        with opened(machine, "private$/orders", receive=True) as queue:
            queue.purge()
        assert guarded.waiting("private$/orders") == 0


def test_a_handle_gives_no_account_the_rights_of_another(guarded: Served):
    """Two accounts of one client share an association: the account of the call is judged."""
    guarded.send("private$/orders", 3)
    with (
        sign_in(guarded, "receiver") as receiver,
        opened(receiver, "private$/orders", receive=True) as queue,
        receiver.second(looker_settings(guarded)) as other,
    ):
        queue._machine = other
        _, answer = queue.start(Action.PEEK_CURRENT)
        assert answer.status == Status.MQ_OK
        _, answer = queue.start(Action.RECEIVE)
        assert answer.status == DENIED
        queue._machine = receiver
    guarded.client.purge("private$/orders")


def test_a_subqueue_is_made_by_who_has_the_right_to_its_queue(guarded: Served):
    guarded.send("private$/orders", 3)

    def refused(machine, name: str, *, receive: bool = False) -> int:
        with pytest.raises(RemoteReadError) as error:
            machine.open(any_name(name), ACCESS_RECEIVE if receive else ACCESS_PEEK)
        return error.value.status

    with sign_in(guarded, "looker") as looker, opened(looker, "private$/orders;a"):
        assert refused(looker, "private$/orders;a", receive=True) == DENIED
        assert refused(looker, "private$/orders;b", receive=True) == DENIED
        for other in (
            "private$/salaries;a",
            "private$/not-there;a",
            "private$/orders;journal",
            "private$/orders;a;b",
        ):
            assert refused(looker, other) == DENIED, other
        with pytest.raises(RemoteReadError) as error:
            looker.call(11, OpenRequest(any_name("private$/orders;b"), ACCESS_MOVE))
        assert error.value.status == DENIED
        with (
            sign_in(guarded, "receiver") as receiver,
            opened(receiver, "private$/orders", receive=True) as queue,
        ):
            (first,) = queue.walk()
            assert (
                move(queue, "private$/orders;a", lookup_id=rebuilt(first.sequence_id, priority=3))
                == Status.MQ_OK
            )
        with (
            sign_in(guarded, "cleaner") as cleaner,
            opened(cleaner, "private$/orders;a", receive=True) as other,
        ):
            other.purge()
    # One for the subqueue alone: it opens what is there, and makes none of a queue that it has no right to.
    account = RpcAccount(
        account=Account(r".\\sub", b"0" * 16),
        queues=("private$/salaries;a",),
        verbs=frozenset({"receive"}),
    )
    assert account.allows("receive", "private$/salaries;a")
    assert not account.allows("receive", "private$/salaries")


def looker_settings(served: Served):
    host = parse_remote_host("test", served.ready["rpc"])
    return credentials(
        "test", host, level="privacy", protocol=None, user="looker",
        password=PASSWORDS["looker"], domain="example",
    ).settings(host)  # fmt: skip


def test_guesses_are_judged_ever_more_slowly_and_who_signed_in_before_is_not_locked_out(
    start: Callable[..., Served], tmp_path: Path
):
    served = start(config=configuration(tmp_path), queues=["private$/orders"])
    with sign_in(served, "receiver") as receiver, opened(receiver, "private$/orders"):
        pass
    for number in range(30):
        with (
            pytest.raises((RemoteReadError, RemoteLostError)),
            sign_in(served, "looker", f"guess {number}") as machine,
        ):
            opened(machine, "private$/orders")
    judged = served.stderr().count("was not let in")
    assert 3 <= judged <= 7
    with (
        pytest.raises((RemoteReadError, RemoteLostError)),
        sign_in(served, "looker") as machine,
    ):
        opened(machine, "private$/orders")  # even the right one waits now
    with sign_in(served, "receiver") as receiver, opened(receiver, "private$/orders"):
        pass
    log = served.stderr()
    assert not any(each in log for each in PASSWORDS.values())


def test_the_file_of_accounts_is_for_all_queues_and_the_log_says_so(
    start: Callable[..., Served], tmp_path: Path
):
    accounts = secret(tmp_path, "accounts", "EXAMPLE\\looker:see nothing else")
    served = start(rpc_accounts=accounts, rpc_min_auth="connect", queues=["private$/orders"])
    with sign_in(served, "looker") as machine, opened(machine, "private$/orders", receive=True):
        pass
    log = served.stderr()
    assert "mqrr.accounts_of_all_queues accounts=1" in log
    assert "mqrr.calls_unprotected" in log


def test_rights_need_a_sign_in_and_a_port(tmp_path: Path):
    flags = {"data_dir": str(tmp_path), "config": str(configuration(tmp_path))}
    assert load({**flags, "rpc": "127.0.0.1:0"}, {}).rpc_auth_level == "privacy"
    with pytest.raises(ConfigurationError, match="without signing in"):
        load({**flags, "rpc": "127.0.0.1:0", "rpc_min_auth": "none"}, {})
    with pytest.raises(ConfigurationError, match="are for --rpc"):
        load(flags, {})
    twice = secret(tmp_path, "accounts", "example\\LOOKER:another")
    with pytest.raises(ConfigurationError, match="is listed twice"):
        load({**flags, "rpc": "127.0.0.1:0", "rpc_accounts": str(twice)}, {})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "reader"}, "DOMAIN"),
        ({"verbs": []}, "verbs is a list of peek, receive, purge"),
        ({"verbs": ["read"]}, "unknown verb 'read'"),
        ({"queues": []}, "queues is a list"),
        ({"password": "open"}, "unknown key 'password'; did you mean 'password_file'"),
        ({"nt_hash_file": "both"}, "one of them"),
        ({"password_file": "/nowhere"}, "cannot be read"),
    ],
)
def test_what_is_no_account_is_told(tmp_path: Path, change: dict[str, object], told: str):
    entry = {
        "name": "A\\b", "verbs": ["peek"],
        "password_file": str(secret(tmp_path, "password", "of the account")), **change,
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match=told):
        parse_rpc_accounts("rpc_account", [entry])


def test_no_secret_is_repeated_in_an_error_or_a_repr(tmp_path: Path):
    password = secret(tmp_path, "password", "of the account")
    entry = {"name": "A\\b", "verbs": ["peek"], "nt_hash_file": str(password)}
    with pytest.raises(ConfigurationError, match="32 hexadecimal digits") as told:
        parse_rpc_accounts("rpc_account", [entry])
    assert "of the account" not in str(told.value)
    del entry["nt_hash_file"]
    (account,) = parse_rpc_accounts("rpc_account", [{**entry, "password_file": str(password)}])
    shown = f"{account!r} {RpcAccounts(None, [account])!r}"
    assert nt_hash("of the account").hex() not in shown
    assert repr(nt_hash("of the account")) not in shown
    password.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        parse_rpc_accounts("rpc_account", [{**entry, "password_file": str(password)}])
    with contextlib.suppress(FileNotFoundError):
        password.unlink()
