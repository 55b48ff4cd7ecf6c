#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searches over scripts whose processes are killed.

Usage: trials_test.py SEARCHING Trials [-v]

SEARCHING is the program of searching.cpp."""
import sys

from search_test import Searches, counting, run_test


class Trials(Searches):
    def test_sixteen_trials_with_a_process_killed_in_each(self):
        """A rank of each second one, the parent of a rank of the others."""
        run = self.search(counting("""
            if step == 3 and rank == 1 and not os.path.exists(name):
                open(name, "w").close()
                os.kill(os.getpid() if x % 2 else os.getppid(), signal.SIGKILL)
            """), space={"x": list(range(16))}, at_once=4, ranks=2, restarts=3)
        self.check_counts(run, 16)
        self.assertEqual(16 * [3], [step for _, step, _, _, _ in self.starts() if step])

    def test_ranks_of_trials_come_from_one_server(self):
        (self.directory / "slow.py").write_text("import os\nprocess = os.getpid()\nprint('imports', flush=True)\n")
        run = self.search(counting("""
            import slow, sys
            assert "slow" in sys.modules and os.getpid() != slow.process
            if step == 3 and not os.path.exists(name):
                open(name, "w").close()
                os.kill(slow.process if x == 3 else os.getpid(), signal.SIGKILL)
            """), space={"x": list(range(8))}, at_once=2, restarts=9, preload="slow")
        self.check_counts(run, 8)
        self.assertLessEqual((run.out + run.err).count("imports"), 2)

    def test_a_search_that_was_killed_resumes(self):
        process = self.begin(counting("time.sleep(0.02)"), space={"x": list(range(6))}, at_once=2)
        run_test.wait_until(lambda: len(list(self.directory.glob("results/search/trial_00002*/checkpoint_00000[2-5]"))) > 0)
        ranks = run_test.descendants(process.pid)
        process.kill()
        process.communicate()
        run_test.wait_until(lambda: not any(run_test.is_alive(rank) for rank in ranks))
        self.check_counts(self.search(counting("time.sleep(0.02)"), space={"x": list(range(6))}, at_once=2), 6)
        self.assertTrue(any(step for _, step, _, _, _ in self.starts()))


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
