"""Goaway: after which answers a client has to connect anew, so that a balancer can send it elsewhere.

Clients and agents keep their connections for as long as they run. Of replicas behind a balancer, one that has been restarted
would get none of them, and one that stops would close connections on which a request is just arriving. `app.api.serve` makes
one `Goaway` for all connections of a process.
"""

import random
from collections.abc import Callable


class Goaway:
    """Decides for each request whether its connection ends with the answer.

    chance:      of any answer, as apiserver's --goaway-chance. Without HTTP/2 a watch has a connection to itself, with few
                 answers: unless the chance is 0, each ends with its watch.
    is_stopping: all do.
    """

    def __init__(self, chance: float = 0.0, draw: Callable[[], float] = random.random) -> None:
        self._chance, self._draw = chance, draw
        self.is_stopping = False

    def ends_connection(self, query: bytes) -> bool:
        if self._chance and not self.is_stopping:
            return b"watch=" in query or self._draw() < self._chance
        return self.is_stopping
