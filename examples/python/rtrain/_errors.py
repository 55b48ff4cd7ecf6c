# SPDX-License-Identifier: Apache-2.0
"""What this module raises."""


class Stopped(SystemExit):
    """A stop condition has ended the run: report() raises it on all ranks. A script that does not catch it ends there,
    with code 0."""

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Error(RuntimeError):
    """What was wrong, and what to do. docs/errors.md explains `code`, such as "RT-E47"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} [{code}]")
        self.code = code
        self.message = message
