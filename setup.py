"""Build of the wheel, the sdist and the editable install; called by setuptools. All that is fixed is in pyproject.toml.

A wheel has one name in site-packages, `jobplane`: the folders in INSIDE go into its own. An editable
install leaves them where they are (docs/decisions/0019-one-name-in-site-packages.md).
"""

import sys

from setuptools import find_namespace_packages, setup

INSIDE = ("app", "migrations", "examples", "deploy")
prefix = "" if "editable_wheel" in sys.argv else "jobplane."
# Folders without modules, such as those of manifests and SQL, are packages to setuptools, too.
below = [f"{top}.{name}" for top in INSIDE for name in find_namespace_packages(top, exclude=["*__pycache__*"])]

setup(
    packages=["jobplane", *(prefix + name for name in sorted([*INSIDE, *below]))],
    package_dir={prefix + name: name for name in INSIDE},
    package_data={"": ["*.sql", "*.sh", "*.yaml", "*.service", "*.txt", "py.typed"], f"{prefix}app.api": ["ui/**/*"]},
)
