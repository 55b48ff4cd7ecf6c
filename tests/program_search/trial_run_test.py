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
        """ASHA stops the worse ones at step 2; their scripts end in report()."""
        for ends in 1, 0:  # at the second time, nothing runs again
            run = self.search(counting(), space={"x": [4, 3, 2], "steps": [7]}, scheduler="asha", at_once=1)
            self.check(run, 0)
            self.assertEqual([7, 2, 2], [trial["reports"] for trial in run.trials])
            self.assertEqual([ends, 0, 0], [run.out.count(f"[trial_0000{i}] [rank 0] ends\n") for i in range(3)])

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
            if x == 1 and name.startswith("trial_00000"):
                open("taken", "w").close()
            elif x == 1 and step == 4:
                open("ahead", "w").close()
            while step > 2 and not os.path.exists("ahead" if x == 0 else "taken" if step == 4 else "script.py"):
                time.sleep(0.01)
            """), space={"x": [0, 1], "steps": [8]}, scheduler="pbt")
        self.check(run, 0)
        taken = [start for start in self.starts() if start[0].startswith("trial_00000") and start[3]["x"] == 1]
        self.assertEqual([str(step) for _, step, _, _, _ in taken], [total for _, _, total, _, _ in taken])
        self.assertTrue(taken)
        self.assertTrue(all(start[1] > 0 for start in taken))
        for trial in run.trials:
            self.assertEqual((8, 8), (trial["metrics"]["step"], trial["metrics"]["score"]))
        self.assertTrue((self.directory / run.trials[0]["path"] / "generation_0" / "result.json").exists())


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
