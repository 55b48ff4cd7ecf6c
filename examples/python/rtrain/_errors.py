# SPDX-License-Identifier: Apache-2.0
"""The error of this module."""


class Error(RuntimeError):
    """What was wrong, and what to do. docs/errors.md explains `code`, such as "RT-E47"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} [{code}]")
        self.code = code
        self.message = message
