"""Package of the installed program: where Python finds it. It holds no code but the two ways in.

`__main__` is the command `jobplane`; `program` starts one of its processes. A wheel installs `app`, `migrations` and `examples`
inside this folder, so that they meet nobody else's packages of these names
([decision 19](../docs/decisions/0019-one-name-in-site-packages.md)). Importing it changes nothing.
"""
