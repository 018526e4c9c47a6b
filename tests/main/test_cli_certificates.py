"""`jobplane certificates create`: what an API would make, before there is one."""

from pathlib import Path

from cryptography import x509

from tests.e2e.test_demo import run_command


def test_the_certificate_is_made_once_and_the_path_of_its_authority_printed(tmp_path: Path) -> None:
    given = ("certificates", "create", "--data-dir", "data", "--tls-san", "api.example")
    shown = run_command(tmp_path, *given)
    authority = tmp_path / "data" / "tls" / "ca.crt"
    first = authority.read_bytes()

    assert shown.stdout == f"{authority}\n", shown.stderr
    assert run_command(tmp_path, *given).stdout == shown.stdout
    assert authority.read_bytes() == first
    server = x509.load_pem_x509_certificate((tmp_path / "data" / "tls" / "server.pem").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "api.example" in names.get_values_for_type(x509.DNSName)
