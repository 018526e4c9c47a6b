"""Worker of a queue in Redis: it processes items and ends when the queue is empty. Needs only Python.

A taken item is in a second list until it is done, with a lease that expires: if its worker dies, another worker takes it.
"""
# ruff: noqa: T201 (what it prints is the pod's log)

import os
import socket
import time
import uuid

QUEUE = os.environ.get("QUEUE", "job2")
LEASE_SECONDS = 10
WORK_SECONDS = float(os.environ.get("WORK_SECONDS", "1"))
TAKE = """
local item = redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
if item then redis.call('SET', KEYS[3] .. item, ARGV[1], 'EX', ARGV[2]) end
return item
"""
PUT_BACK = """
for _, item in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if redis.call('EXISTS', KEYS[3] .. item) == 0 then
    redis.call('LREM', KEYS[2], 1, item)
    redis.call('RPUSH', KEYS[1], item)
  end
end
return redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2])
"""


class Redis:
    """Client for the part of the Redis protocol that a worker needs."""

    def __init__(self, host: str, port: int) -> None:
        self.stream = socket.create_connection((host, port)).makefile("rwb")

    def __call__(self, *words: str | int) -> int | str | None:
        encoded = [str(word).encode() for word in words]
        self.stream.write(b"*%d\r\n" % len(encoded))
        for word in encoded:
            self.stream.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.stream.flush()
        return self.answer()

    def answer(self) -> int | str | None:
        """A number or a string, or None for no value. Other types of answers do not occur here."""
        line = self.stream.readline()
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else self.stream.read(int(rest) + 2)[:-2].decode()
        if kind == b"+":
            return rest
        raise RuntimeError(f"Redis says: {rest or 'nothing'}")


class Queue:
    def __init__(self, redis: Redis, name: str) -> None:
        self.redis, self.session = redis, str(uuid.uuid4())
        self.keys = (name, f"{name}:processing", f"{name}:leased:")

    def is_empty(self) -> bool:
        """No item waits or is being processed. Items of dead workers are put back first."""
        return self.redis("EVAL", PUT_BACK, 3, *self.keys) == 0

    def take(self) -> int | str | None:
        return self.redis("EVAL", TAKE, 3, *self.keys, self.session, LEASE_SECONDS)

    def done(self, item: int | str) -> None:
        self.redis("LREM", self.keys[1], 1, item)
        self.redis("DEL", f"{self.keys[2]}{item}")


def main() -> None:
    redis = Redis(os.environ.get("REDIS_SERVICE_HOST", "redis"), int(os.environ.get("REDIS_SERVICE_PORT", "6379")))
    queue = Queue(redis, QUEUE)
    print(f"Worker with sessionID: {queue.session}")
    print(f"Initial queue state: empty={queue.is_empty()}")
    while not queue.is_empty():
        item = queue.take()
        if item is None:
            print("Waiting for work")
            time.sleep(1)
            continue
        print(f"Working on {item}")
        time.sleep(WORK_SECONDS)  # the work itself
        queue.done(item)
    print("Queue empty, exiting")


main()
