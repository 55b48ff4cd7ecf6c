#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MlFlow in the suite for everybody's trackers (conformance_test.cpp).

Usage: mlflow_conformance_test.py TRACKER_TESTS

The server is mlflow_stand_in.py's.
"""

import os
import subprocess
import sys

from mlflow_stand_in import Server


def main():
    environment = os.environ | {"MLFLOW_TRACKING_URI": Server().uri}
    return subprocess.run([sys.argv[1], "--test-case=Tracker.MlFlow.*"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
