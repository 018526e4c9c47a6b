"""What is published as files is what is served: whoever reviews a change of the API sees it there."""

from pathlib import Path

from app.api.openapi.v3 import OpenApi, write
from app.api.resources.ephemeral_resources import EPHEMERAL
from app.api.resources.unsupported_kinds import UNSUPPORTED
from app.kinds import KINDS

OPENAPI = OpenApi((*KINDS, *UNSUPPORTED), EPHEMERAL)
COMMITTED = Path(__file__).parents[3] / "openapi"


def test_the_committed_documents_are_current(tmp_path: Path) -> None:
    write(tmp_path, OPENAPI)

    made, committed = ({path.name: path.read_bytes() for path in each.glob("*.json")} for each in (tmp_path, COMMITTED))
    assert made == committed, "run `python -m app.api.openapi.v3 openapi/` and read what changed"


def test_writing_removes_the_documents_of_groups_that_are_no_more(tmp_path: Path) -> None:
    (tmp_path / "apis_gone_v1.json").write_text("{}")
    write(tmp_path, OPENAPI)

    assert not (tmp_path / "apis_gone_v1.json").exists()


def test_the_same_code_writes_the_same_bytes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
        write(folder, OpenApi((*KINDS, *UNSUPPORTED), EPHEMERAL))

    one, other = ({path.name: path.read_bytes() for path in each.iterdir()} for each in folders)
    assert one == other
