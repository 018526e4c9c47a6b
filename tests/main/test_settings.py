"""Settings, whether they come by flag or by variable."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings

PATHS = (
    "data_dir",
    "token_file",
    "ca_file",
    "join_token_file",
    "secrets_key_file",
    "oidc_ca_file",
    "audit_policy_file",
    "authentication_config",
)


@pytest.mark.parametrize("name", PATHS)
def test_every_path_is_absolute(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    for given, expected in {"w1": tmp_path / "w1", "./w1": tmp_path / "w1", "~/w1": Path("/home/ada/w1")}.items():
        monkeypatch.setenv(f"JOBPLANE_{name.upper()}", given)
        assert getattr(Settings(), name) == expected
        assert getattr(Settings(**{name: given}), name) == expected


def test_no_path_is_forgotten() -> None:
    """A new setting that is a path has to be listed above, and be validated like these."""
    assert {name for name, field in Settings.model_fields.items() if "Path" in str(field.annotation)} == set(PATHS)


def test_the_default_folder_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBPLANE_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert Settings().data_dir == Path("/home/ada/.jobplane")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("server", "10.77.0.1:7443", "is not a URL such as https://"),
        ("server", "ftp://10.77.0.1", "is not a URL such as https://"),
        ("server", "https://", "is not a URL such as https://"),
        ("server", "https://a:99999", "is not a URL such as https://"),
        ("server", "https://[::1", "is not a URL such as https://"),
        ("server", "https://a b", "is not a URL such as https://"),
        ("database_url", "mysql://u:secret@h/x", "postgresql://user:password@host/database"),
        ("database_url", "h:5432/x", "postgresql://user:password@host/database"),
        ("otlp_endpoint", "collector:4318", "not a URL such as http://127.0.0.1:4318"),
        ("metrics_address", "9464", "9464 is not an address such as 127.0.0.1:9464"),
        ("log_level", "bogus", "bogus is not a level: pass one of debug, info, warning, error, critical"),
        ("data_dir", "~nobody-of-that-name/x", "pass an absolute path"),
    ],
)
def test_a_value_that_cannot_work_is_refused(name: str, value: str, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected) as refused:
        Settings(**{name: value})
    assert "secret" not in refused.value.errors()[0]["msg"]


@pytest.mark.parametrize("url", ["https://[::1]:6443", "http://localhost:8080", "https://api.example/prefix"])
def test_the_url_of_an_api_is_taken_as_it_is(url: str) -> None:
    assert Settings(server=url).server == url


@pytest.mark.parametrize(
    ("address", "following"), [("", ""), ("[::1]:9464", "[::1]:9465"), ("127.0.0.1:0", "127.0.0.1:0")]
)
def test_the_agent_of_up_serves_its_numbers_at_the_next_port(address: str, following: str) -> None:
    assert Settings(metrics_address=address).next_metrics_address == following
