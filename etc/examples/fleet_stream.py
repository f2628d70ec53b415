"""Creates the stream of fleet_history.py, and the keys of the users of the NATS servers:

    python3 fleet_stream.py create-key bng1.nk
    python3 fleet_stream.py create-stream --nats tls://nats1.example.net:4222 --replicas 3

--help lists the options. The program requires nats-py[nkeys], and fleet_history.py in the same folder.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

import nats
import nkeys
from fleet_history import STREAM, add_connection_options, connect
from nats.js.api import DiscardPolicy, StreamConfig
from nats.js.errors import NotFoundError

# One for each kind of message, not gw.>: the servers refuse other subjects, also those that are not UTF-8,
# which nats-py cannot read.
SUBJECTS = [
    *(f"gw.*.events.{event}" for event in ("session_up", "session_down", "session_rate")),
    *(f"gw.*.{kind}" for kind in ("snapshot", "commits", "faults", "health", "audit")),
]


async def create_stream(options: argparse.Namespace) -> None:
    """Create the stream, or change its limits."""
    connection = await connect(options)
    jetstream = connection.jetstream()
    config = StreamConfig(
        STREAM,
        subjects=SUBJECTS,
        num_replicas=options.replicas,
        max_age=options.days * 86_400,
        max_bytes=options.gibibytes * 1024**3,
        duplicate_window=120,
        # Otherwise a gateway that floods the stream would remove the messages of all.
        discard=DiscardPolicy.NEW,
    )
    try:
        await jetstream.update_stream(config)
    except NotFoundError:
        await jetstream.add_stream(config)
    await connection.close()


def create_key(options: argparse.Namespace) -> None:
    """Write the seed of a new NKey to a file, and print the public key, which the servers need."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    options.file.touch(0o600, exist_ok=False)
    options.file.write_bytes(seed)
    print(nkeys.from_seed(seed).public_key.decode())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    stream_parser = commands.add_parser("create-stream", help="create the stream, or change its limits")
    add_connection_options(stream_parser)
    stream_parser.add_argument("--replicas", type=int, default=1, help="servers that store each message")
    stream_parser.add_argument("--days", type=int, default=7, help="age at which messages are removed")
    stream_parser.add_argument(
        "--gibibytes", type=int, default=10, help="size above which new ones are refused"
    )
    stream_parser.set_defaults(work=lambda options: asyncio.run(create_stream(options)))
    key_parser = commands.add_parser("create-key", help="write an NKey, and print its public key")
    key_parser.add_argument("file", type=Path)
    key_parser.set_defaults(work=create_key)
    options = parser.parse_args()
    try:
        options.work(options)
    except (nats.errors.Error, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
