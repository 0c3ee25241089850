"""Errors of libiso as exceptions: the status, its sentence, and what was wrong in the call."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """Why a call failed. The values are those of libiso and permanent."""

    OK = 0
    INVALID_ARGUMENT = 1
    OUT_OF_MEMORY = 2
    FILE = 3
    NOT_ISO = 4
    CORRUPT = 5
    VERSION_MISMATCH = 6
    CONTRACT = 7
    TOOLCHAIN = 8
    DRIVER = 9
    ARCHITECTURE = 10
    UNKNOWN_OP = 11
    UNKNOWN_LAYOUT = 12
    BAD_RANK = 13
    BAD_TENSOR = 14
    BAD_COUNT = 15
    WORKSPACE = 16
    NEEDS_JOIN = 17
    NO_JOIN = 18
    UNSUPPORTED = 19
    FINGERPRINT = 20
    INTERNAL = 21
    RANK_LOST = 22
    RANK_TIMEOUT = 23
    BOOTSTRAP = 24
    WEIGHTS = 25
    DISORDER = 26
    GROUP_BYTES = 27
    NO_MODEL = 28
    BAD_WEIGHT = 29
    STEP_ROWS = 30
    PAGES = 31


class IsoError(RuntimeError):
    """A refused or failed call.

    Attributes:
        status: why, as a :class:`Status`.
        sentence: what the status means in general.
        detail: what was wrong in this call, with names and numbers; may be empty.
    """

    def __init__(self, status: int, sentence: str, detail: str) -> None:
        self.status = Status(status)
        self.sentence = sentence
        self.detail = detail
        super().__init__(f"{self.status.name}: {detail or sentence}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (int(self.status), self.sentence, self.detail))
