"""isoc-replay RECEIPT --model FILE --weights WEIGHTS [--device cpu]

Also `python -m isoc replay`; the name `isoc` is the compiler's.

Draws what a receipt is of once more and compares every token and every bit. Exit codes: 0 equal,
1 they differ, 2 usage, 3 the receipt is of another contract or other weights, or something failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import Engine, IsoError, Receipt, load


def _replay(options: argparse.Namespace) -> int:
    receipt = Receipt.read(Path(options.receipt).read_text(encoding="utf-8"))
    length = len(receipt.request["prompt"]) + receipt.request["tokens"]
    module = load(options.model, device=options.device)
    with Engine(module, options.weights, layout=options.layout, at_once=1, max_rows=512,
                max_position=length) as engine:
        differ = receipt.replay(engine)
    for line in differ:
        print(line)
    print(f"{len(differ)} differences in {len(receipt.tokens)} tokens of {receipt.contract}")
    return 1 if differ else 0


def replay() -> int:
    """The wheel's command isoc-replay."""
    return main(["replay", *sys.argv[1:]])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m isoc")
    commands = parser.add_subparsers(dest="command", required=True)
    replay = commands.add_parser("replay", help="draw what a receipt is of once more")
    replay.add_argument("receipt", help="a JSON file")
    replay.add_argument("--model", required=True, help="a cubin, or a contract (.iso)")
    replay.add_argument("--weights", required=True, help="a folder, a file, or seed:N")
    replay.add_argument("--layout", help="of one rank; the contract on one rank if not given")
    replay.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    options = parser.parse_args(arguments)
    try:
        return _replay(options)
    except (IsoError, OSError, ValueError) as problem:
        print(f"isoc replay: {problem}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
