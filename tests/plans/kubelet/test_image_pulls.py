"""Names of images, logins for them, and how long a failed pull waits."""

import base64

import pytest

from app.plans.kubelet.image_pulls import Credential, InvalidImageName, backoff, credentials, full_name

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param("busybox", "docker.io/library/busybox:latest", id="one word is a library's"),
        pytest.param("a/b:1", "docker.io/a/b:1", id="two words are somebody's"),
        pytest.param("localhost/b", "localhost/b:latest", id="localhost is a registry"),
        pytest.param("host:5000/b", "host:5000/b:latest", id="a port makes a registry"),
        pytest.param("quay.io/a/b", "quay.io/a/b:latest", id="a dot makes a registry"),
        pytest.param(f"b@{DIGEST}", f"docker.io/library/b@{DIGEST}", id="a digest needs no tag"),
        pytest.param(f"b:1@{DIGEST}", f"docker.io/library/b@{DIGEST}", id="a digest wins over a tag"),
        pytest.param("index.docker.io/library/b", "docker.io/library/b:latest", id="the hub has several names"),
        pytest.param(DIGEST, DIGEST, id="an id stays"),
    ],
)
def test_the_whole_name_of_an_image(image: str, expected: str) -> None:
    assert full_name(image) == expected


@pytest.mark.parametrize("image", ["", "Busybox", "a b", "a:b:c", "a//b", "/a", "a/", "a@b", "-a"])
def test_what_is_no_name_of_an_image(image: str) -> None:
    with pytest.raises(InvalidImageName, match="invalid reference format"):
        full_name(image)


def test_a_name_of_an_image_may_be_too_long() -> None:
    longest = "a" * 250 + "/" + "b" * 4
    assert full_name(f"{longest}:1") == f"docker.io/{longest}:1"
    with pytest.raises(InvalidImageName, match="repository name must not be more than 255 characters"):
        full_name(f"{longest}b:1")


def _entry(name: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{name}:secret".encode()).decode()}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param({"quay.io": _entry("q")}, "q", id="of its registry"),
        pytest.param({"https://quay.io/v1/": _entry("q")}, "q", id="of its registry as an address"),
        pytest.param({"quay.io": _entry("q"), "quay.io/team": _entry("t")}, "t q", id="the closer one first"),
        pytest.param({"quay.io/other": _entry("o")}, "", id="not of another folder"),
        pytest.param({"docker.io": _entry("d")}, "", id="not of another registry"),
        pytest.param({"*.io": _entry("s")}, "s", id="of any registry that matches"),
        pytest.param({"*": _entry("s")}, "", id="not of a star for several parts"),
        pytest.param({"quay.io": {"auth": "%%%"}}, "", id="not what nobody can read"),
    ],
)
def test_logins(entries: dict, expected: str) -> None:
    for secret in ({"auths": entries}, entries):
        assert credentials([secret], "quay.io/team/app") == [Credential(name, "secret") for name in expected.split()]


def test_a_failed_pull_waits_ever_longer() -> None:
    assert [int(backoff(failures).total_seconds()) for failures in (1, 2, 3, 5, 6, 1000)] == [10, 20, 40, 160, 300, 300]
