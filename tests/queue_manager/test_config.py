"""Options of ``serve``: flag, environment, file, in this order; unknown keys are errors (INTERFACE.md section 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.configuration.endpoint import Endpoint
from srmp_spark.queue_manager.configuration.queue_spec import QueueSpec

TOKEN = "0123456789abcdef0123"


def refused(flags: dict[str, object], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as error:
        load({"data_dir": "d", **flags}, environment or {})
    return str(error.value)


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        'listen = "127.0.0.1:1"\napi = "127.0.0.1:2"\nretention_hours = 3\nqueue = ["a", '
        '"private$/B:transactional"]\n'
    )
    config = load(
        {"data_dir": "d", "config": str(file), "listen": "127.0.0.1:7"},
        {"SRMP_SPARK_LISTEN": "127.0.0.1:6", "SRMP_SPARK_API": "127.0.0.1:5"},
    )
    assert (config.listen.port, config.api.port, config.retention_hours) == (7, 5, 3.0)
    assert config.queue == (QueueSpec("a", False), QueueSpec("private$/b", True))
    assert load({"data_dir": "d"}, {"SRMP_SPARK_CONFIG": str(file)}).listen.port == 1


def test_unknown_keys_name_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("retention_hour = 3\n")
    assert "did you mean 'retention_hours'" in refused({"config": str(file)})
    assert "did you mean 'SRMP_SPARK_LISTEN'" in refused({}, {"SRMP_SPARK_LISTN": "x"})


def test_what_others_put_into_the_environment_is_no_key_of_ours() -> None:
    kubernetes = {
        "SRMP_SPARK_SERVICE_HOST": "10.0.0.1",
        "SRMP_SPARK_PORT": "tcp://10.0.0.1:80",
        "SRMP_SPARK_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    client = {"SRMP_SPARK_API": "http://127.0.0.1:8081", "SRMP_SPARK_TOKEN": TOKEN}
    config = load({"data_dir": "d"}, kubernetes | client)
    assert config.api.port == 8081
    assert config.token == TOKEN
    assert TOKEN not in repr(config), "secrets are in no repr"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"listen": "8080"}, "HOST:PORT"),
        ({"listen": "h:99999"}, "HOST:PORT"),
        ({"queue": ["a:transactionl"]}, "did you mean 'transactional'"),
        ({"queue": ["private$/replies:trans"]}, "did you mean 'transactional'"),
        ({"queue": ["a:b:journl"]}, "did you mean 'journal'"),
        ({"expired": "drop"}, "known: keep, refuse"),
        ({"machine_quota_bytes": "0"}, "machine-quota-bytes"),
        (
            {"queue": ["a:multicast=234.1.1.1:8001:transactional"], "pgm": "raw"},
            "multicast messages are express",
        ),
        (
            {"queue": ["a:multicast=234.1.1.1:8001:multicast=234.1.1.2:1"], "pgm": "raw"},
            "one multicast address",
        ),
        ({"queue": ["a:multicast=10.0.0.1:8001"], "pgm": "raw"}, "is no multicast address"),
        ({"queue": ["a:multicast=234.1.1.1"], "pgm": "raw"}, "is no multicast address"),
        ({"queue": ["a:multicast=234.1.1.1:8001"]}, "needs --pgm raw"),
        (
            {"queue": ["a:multicast=234.1.1.1:8001", "b:multicast=234.1.1.1:8001"], "pgm": "raw"},
            "give each its own",
        ),
        ({"pgm": "udp"}, "or udp:PORT"),
        ({"pgm": "udp:70000"}, "or udp:PORT"),
        ({"pgm": "raw", "pgm_ttl": "256"}, "from 1 to 255"),
        ({"wsrm_buffer": "0"}, "from 1 to 4096"),
        ({"wsrm_buffer": "4097"}, "from 1 to 4096"),
        ({"wsrm_buffer": "many"}, "from 1 to 4096"),
        ({"pgm_interface": "eth0"}, "for --pgm raw or"),
        ({"queue": ["a/b/c"]}, "queue name"),
        ({"queue": ["a", "A"]}, "twice"),
        ({"unknown_queue": "drop"}, "known: reject, retry"),
        ({"retention_hours": "0"}, "above 0"),
        ({"retention_hours": "nan"}, "above 0"),
        ({"queue_quota_bytes": "1.5"}, "queue-quota-bytes"),
        ({"public_url": "http://h/path"}, "without a path"),
        ({"public_url": "h"}, "URL"),
        ({"host_name": ["http://h"]}, "host name"),
        ({"allow_url": ["*"]}, "--allow-url"),
        ({"resend_table": "30,x"}, "resend-table"),
        ({"token_file": "/nonexistent"}, "cannot be read"),
        ({"api_cert": "c"}, "belong together"),
        ({"config": "/nonexistent.toml"}, "--config"),
    ],
)
def test_a_wrong_value_says_what_is_wrong(flags: dict[str, object], says: str) -> None:
    assert says in refused(flags)


def test_the_data_directory_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="--data-dir"):
        load({}, {})


def test_an_api_beyond_loopback_needs_a_token_and_tls(tmp_path: Path) -> None:
    assert "--token-file" in refused({"api": "0.0.0.0:0"})
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN + "\n")
    assert "--api-cert" in refused({"api": "0.0.0.0:0", "token_file": str(token)})
    config = load(
        {
            "data_dir": "d",
            "api": "0.0.0.0:0",
            "token_file": str(token),
            "api_cert": "c",
            "api_key": "k",
        },
        {},
    )
    assert config.token == TOKEN
    token.write_text("short")
    assert "16 or more" in refused({"token_file": str(token)})


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ("private$/a:b", QueueSpec("private$/a:b", False)),
        ("private$/a:b:transactional", QueueSpec("private$/a:b", True)),
        ("A:TRANSACTIONAL", QueueSpec("a", True)),
        ("a::b:", QueueSpec("a::b:", False)),
        ("a:tr", QueueSpec("a:tr", False)),
        ("a:cast", QueueSpec("a:cast", False)),
        ("transactional", QueueSpec("transactional", False)),
        ("multicast=1:b", QueueSpec("multicast=1:b", False)),
    ],
)
def test_only_a_known_suffix_is_an_option_and_every_other_colon_belongs_to_the_name(
    written: str, spec: QueueSpec
) -> None:
    assert QueueSpec.parse(written) == spec


def test_a_host_name_with_the_dot_of_an_absolute_name_is_the_same_host() -> None:
    config = load({"data_dir": "d", "host_name": ["Machine2."]}, {})
    assert "machine2" in config.local_hosts(Endpoint("127.0.0.1", 1))
    assert config.public_base(Endpoint("127.0.0.1", 1)) == "http://machine2:1"


def test_what_public_url_and_host_name_do_to_receipts_and_destinations() -> None:
    listening = Endpoint("127.0.0.1", 8080)
    plain = load({"data_dir": "d"}, {})
    assert plain.public_base(listening) == "http://127.0.0.1:8080"
    named = load({"data_dir": "d", "host_name": ["Gateway", "b"]}, {})
    assert named.public_base(listening) == "http://gateway:8080"
    assert all(
        host in named.local_hosts(listening) for host in ("gateway", "b", "127.0.0.1", "localhost")
    )
    assert "evil" not in named.local_hosts(listening)
    public = load(
        {"data_dir": "d", "public_url": "https://mq.example:8443/", "host_name": ["gateway"]}, {}
    )
    assert public.public_base(listening) == "https://mq.example:8443"
    assert "mq.example" in public.local_hosts(listening)
    everywhere = load({"data_dir": "d", "listen": "0.0.0.0:80"}, {})
    assert "127.0.0.1" in everywhere.local_hosts(everywhere.listen)


def test_the_example_file_is_accepted() -> None:
    example = Path(__file__).resolve().parents[2] / "conf" / "serve.toml"
    config = load({"config": str(example)}, {})
    assert config.queue[1] == QueueSpec("private$/payments", True)
    assert config.listen.port == 80


def test_messages_that_come_too_late_are_kept_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    flags = {"data_dir": str(tmp_path)}
    assert (load(flags, {}).expired, load(flags, {}).machine_quota_bytes) == ("keep", None)
    file = tmp_path / "serve.toml"
    file.write_text('expired = "refuse"\nmachine_quota_bytes = 1000000\nqueue = ["a:journal"]\n')
    config = load({**flags, "config": str(file)}, {})
    assert (config.expired, config.machine_quota_bytes, config.queue) == (
        "refuse",
        1_000_000,
        (QueueSpec("a", False, True),),
    )


def test_two_listeners_of_one_port_and_a_state_that_cannot_be_a_folder_are_told_at_once(
    tmp_path: Path,
) -> None:
    told = refused({"listen": "127.0.0.1:8090", "api": "127.0.0.1:8090"})
    assert told == "--listen and --api are both 127.0.0.1:8090: give each its own port"
    assert load({"data_dir": "d", "listen": "127.0.0.1:0", "api": "127.0.0.1:0"}, {}), (
        "any two free ones"
    )
    file = tmp_path / "README.md"
    file.write_text("")
    assert (
        refused({"state": str(file)})
        == f"--state {file}: {file} is a file; name a folder, which is made if it is not there"
    )
    assert f"{file} is a file" in refused({"state": f"file://{file}/state"})
    assert load({"data_dir": "d", "state": str(tmp_path / "new" / "state")}, {}), "it is made"
    with pytest.MonkeyPatch.context() as patch:

        def closed(path: Path) -> bool:
            raise PermissionError(13, "Permission denied", str(path))

        patch.setattr(Path, "is_dir", closed)
        assert "Permission denied; give the user of serve" in refused({"state": "/closed/state"})
    assert load({"data_dir": "d", "state": "s3://bucket/state"}, {})


def test_a_state_folder_that_delta_cannot_use_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    """Delta writes to ``a%20b`` and reads ``a b``: it would never publish."""
    said = refused({"state": str(tmp_path / "a%20b")})
    assert said.endswith(
        f"if {tmp_path / 'a b'} is meant, name that: a path is taken as it is, only a URL "
        "is decoded"
    )
    assert "with %20 in its path" in refused({"state": f"file://{tmp_path}/a%2520b"})
    for state in (str(tmp_path / "50% of it"), f"file://{tmp_path}/a%20b", "s3://bucket/a%20b"):
        load({"data_dir": str(tmp_path / "d"), "state": state}, {})
