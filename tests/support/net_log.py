# SPDX-License-Identifier: Apache-2.0
"""What Chromium's --log-net-log tells."""

import re

# What a browser asks by itself, for updates and the time, comes from no origin.
BY_A_PAGE = re.compile(r'"initiator":"(?!not an origin)[^"]*".*"url":"((?:http|ws)[^"]*)"')


def asked_by_pages(log):
    """The addresses that pages have asked for, each once."""
    return sorted(set(BY_A_PAGE.findall(log.read_text(errors="replace"))))
