#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the script of a trial gets, and how the search ends it.

Usage: trial_run_test.py SEARCHING TrialRun [-v]

SEARCHING is the program of searching.cpp."""
import sys

from search_test import Searches, counting, run_test


class TrialRun(Searches):
    def test_trials_get_their_configurations_and_print_their_names(self):
        run = self.search(counting(), space={"x": [1, 2], "datasets/train": ["a"], "scaling/num_workers": [2]})
        self.check_counts(run, 2)
        self.assertEqual([{"fixed": 1, "x": 1}, {"fixed": 1, "x": 2}],
                         sorted((config for *_, config, _ in self.starts(1)), key=lambda config: config["x"]))
        self.assertIn("[trial_00001] [rank 1] ends\n", run.out)

    def test_a_stopped_script_sees_it(self):
        """ASHA stops the worse half at step 2; their scripts end in report()."""
        run = self.search(counting("time.sleep(0.1)"), space={"x": [4, 3, 2, 1], "steps": [8]}, scheduler="asha", at_once=4)
        self.check(run, 0)
        reports = [trial["reports"] for trial in run.trials]
        self.assertIn(8, reports)
        self.assertLess(min(reports), 8)
        self.assertEqual(sum(count == 8 for count in reports), run.out.count("ends"))
        run = self.search(counting(), space={"x": [4, 3, 2, 1], "steps": [8]}, scheduler="asha", at_once=4)
        self.assertEqual(reports, [trial["reports"] for trial in run.trials])  # nothing runs again

    def test_a_stopped_trial_that_goes_on_is_killed(self):
        run = self.search("""
            import time
            import rtrain
            try:
                rtrain.report({"score": 1})
            except BaseException:
                time.sleep(1000)
            """, iterations=1, cleanup_s=0.5)
        self.check(run, 0, "has not returned 0.5 s after the search stopped it")
        self.assertEqual([("TERMINATED", 1)], [(trial["state"], trial["reports"]) for trial in run.trials])

    def test_a_trial_takes_over_the_checkpoint_of_another(self):
        run = self.search(counting("""
            while x == 0 and step == 2 and not os.path.exists("ahead"):
                time.sleep(0.01)
            if x and step == 3:
                open("ahead", "w").close()
            """), space={"x": [0, 1], "steps": [8]}, scheduler="pbt", at_once=2)
        self.check(run, 0)
        taken = [start for start in self.starts() if start[1] and "offset" in start[3]]
        self.assertTrue(taken, self.starts())
        for _, step, total, config, _ in taken:
            self.assertEqual((str(step), 1), (total, config["x"]))  # the donor's sum and configuration
        for trial in run.trials:
            self.assertEqual((8, 8), (trial["metrics"]["step"], trial["metrics"]["score"]))


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
