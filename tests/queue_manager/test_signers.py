"""``[[signer]]`` of the configuration file: whose signatures are checked, and with which keys."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.trust import signers
from srmp_spark.queue_manager.trust.signers import Signer, trusted_keys
from srmp_spark.srmp.limits import SIGNER_KEYS_MAX
from tests.kit.foreign.signature import dsa_signer, rsa_signer

GUID = "f6a3323c-7c7b-4a5f-b0ed-b3f63a200893"
OTHER = "aaaaaaaa-0000-4000-8000-000000000001"


def loaded(tmp_path: Path, toml: str) -> tuple[Signer, ...]:
    file = tmp_path / "serve.toml"
    file.write_text('data_dir = "d"\n' + toml)
    return load({"config": str(file)}, {}).signer


def refused(tmp_path: Path, toml: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        loaded(tmp_path, toml)
    assert "signer in " in str(error.value)
    return str(error.value)


def entry(source_qm: str = GUID, certificate: str = '"a.pem"') -> str:
    return f'[[signer]]\nsource_qm = "{source_qm}"\ncertificate = {certificate}\n'


def test_signers_stand_in_the_file(tmp_path: Path) -> None:
    assert load({"data_dir": "d"}, {}).signer == ()
    braces = entry("{" + GUID.upper() + "}")
    assert loaded(tmp_path, braces + entry(OTHER, '["b.pem", "c.pem"]')) == (
        Signer(GUID, (Path("a.pem"),)),
        Signer(OTHER, (Path("b.pem"), Path("c.pem"))),
    )


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('signer = "a.pem"\n', "expected tables"),
        ("signer = [1]\n", "expected tables"),
        (f'[[signer]]\nsource = "{GUID}"\n', "did you mean 'source_qm'"),
        ('[[signer]]\npassword = "x"\n', "known: source_qm, certificate"),
        (entry("orders"), "GUID of the sending queue manager"),
        ('[[signer]]\ncertificate = "a.pem"\n', "GUID of the sending queue manager"),
        (f'[[signer]]\nsource_qm = "{GUID}"\n', "certificate is a PEM file"),
        (entry(certificate="[]"), "certificate is a PEM file"),
        (entry(certificate="[1]"), "certificate is a PEM file"),
        (entry(certificate='""'), "certificate is a PEM file"),
        (entry() + entry(GUID.upper()), "is listed twice; give it a list"),
    ],
)
def test_what_is_no_signer_is_refused_in_words(tmp_path: Path, toml: str, said: str) -> None:
    assert said in refused(tmp_path, toml)


def test_the_number_of_signers_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signers, "SIGNERS_MAX", 1)
    assert "SIGNERS_MAX is 1, got 2" in refused(tmp_path, entry() + entry(OTHER))


def test_neither_flag_nor_environment_name_signers() -> None:
    with pytest.raises(ConfigurationError, match="unknown variable SRMP_SPARK_SIGNER"):
        load({"data_dir": "d"}, {"SRMP_SPARK_SIGNER": "x"})


def test_whether_an_invalid_message_is_kept_is_a_flag() -> None:
    assert load({"data_dir": "d"}, {}).invalid_signature == "keep"
    assert load({"data_dir": "d", "invalid_signature": "refuse"}, {}).invalid_signature == "refuse"
    with pytest.raises(ConfigurationError, match="did you mean 'refuse'"):
        load({"data_dir": "d", "invalid_signature": "refuze"}, {})


def test_all_keys_of_all_files_are_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = tmp_path / "a.pem", tmp_path / "b.pem"
    first.write_bytes(rsa_signer(512).public_pem + rsa_signer().public_pem)
    second.write_bytes(dsa_signer().public_pem)
    with caplog.at_level(logging.INFO):
        found = trusted_keys((Signer(GUID, (first, second)), Signer(OTHER, (second,))))
    assert {guid: list(map(repr, keys)) for guid, keys in found.items()} == {
        GUID: ["<RsaKey 512 bits>", "<RsaKey 1024 bits>", "<DsaKey 1024 bits>"],
        OTHER: ["<DsaKey 1024 bits>"],
    }
    weak = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(weak) == 1, "an operator is told of the one key that is too short"
    assert weak[0].startswith(f"signer.weak source_qm={GUID} key=<RsaKey 512 bits>")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"no key", "holds no certificate and no public key"),
        (b"x" * (signers.FILE_MAX + 1), "is longer than 65536 bytes"),
    ],
)
def test_a_file_that_holds_no_key_is_named(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "a.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said) as error:
        trusted_keys((Signer(GUID, (file,)),))
    assert f"certificate {file} of signer {GUID}" in str(error.value)


def test_the_keys_of_one_signer_have_a_limit(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.pem" for n in range(SIGNER_KEYS_MAX + 1)]
    for file in files:
        file.write_bytes(rsa_signer().public_pem)
    with pytest.raises(ConfigurationError, match="has 5 keys; SIGNER_KEYS_MAX is 4"):
        trusted_keys((Signer(GUID, tuple(files)),))
