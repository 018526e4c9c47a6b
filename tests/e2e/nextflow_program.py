"""Nextflow as a program on PATH, of its jars on Maven Central: its own launcher asks nextflow.io, which tests may not reach.

24.10.0 is the last version there whose executor for Kubernetes is not a plugin. lib-trace is not there; nothing here calls it.
"""

import shutil
import subprocess
from pathlib import Path

from tests.e2e.environments import HOME, made_once
from tests.needs import lacking

VERSION = "24.10.0"
PROJECT = f"""
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>nextflow</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>io.nextflow</groupId><artifactId>nextflow</artifactId><version>{VERSION}</version>
    <exclusions><exclusion><groupId>io.seqera</groupId><artifactId>lib-trace</artifactId></exclusion></exclusions>
  </dependency></dependencies>
</project>
"""
OPENED = (
    *("lang", "io", "nio", "net", "util", "util.regex", "util.concurrent.locks", "util.concurrent.atomic"),
    *("/sun.nio.ch", "/sun.nio.fs", "/sun.net.www.protocol.http", "/sun.net.www.protocol.https", "/jdk.internal.misc"),
)
"""Packages of Java that Nextflow opens to itself; below `java.`, unless there is a slash."""


def folder() -> Path:
    """Where the program is."""
    if missing := [each for each in ("mvn", "java") if shutil.which(each) is None]:
        lacking(f"needs {', '.join(missing)}")
    made = HOME / "nextflow"
    with made_once(made) as is_missing:
        if is_missing:
            _fetch(made)
            _write_program(made)
    return made / "bin"


def _fetch(made: Path) -> None:
    (made / "pom.xml").write_text(PROJECT)
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={made / 'lib'}"]
    done = subprocess.run(copy, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def _write_program(made: Path) -> None:
    names = [each[1:] if each.startswith("/") else f"java.{each}" for each in OPENED]
    opens = " ".join(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in names)
    program = made / "bin" / "nextflow"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\nexport NXF_OFFLINE=true NXF_PLUGINS_DEFAULT=false\n"
        f"exec java {opens} -cp '{made}/lib/*' nextflow.cli.Launcher \"$@\"\n"
    )
    program.chmod(0o755)
