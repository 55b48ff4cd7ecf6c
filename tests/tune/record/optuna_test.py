#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether Optuna reads the journal that Record.optunas_journal_goes_on_behind_a_crash leaves, and shows the
same trials. Ends with 77 without Optuna.

Usage: optuna_test.py TUNE_TESTS
"""

import math
import os
import subprocess
import sys
import tempfile

try:
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState
except ImportError as error:
    print(f"skipped: Optuna is not installed (pip install optuna): {error}")
    sys.exit(77)


def main():
    with tempfile.TemporaryDirectory() as directory:
        journal = os.path.join(directory, "journal.log")
        subprocess.run([sys.argv[1], "-tc=Record.optunas_journal*"], check=True,
                       env=os.environ | {"RTRAIN_KEEP_JOURNAL": journal})
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(journal))
        study = optuna.load_study(study_name="search", storage=storage)
        assert study.direction == optuna.study.StudyDirection.MAXIMIZE
        trials = study.trials
        assert [t.user_attrs["trial_id"] for t in trials] == ["a", "b", "c", "d", "e"]
        assert [t.state for t in trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL,
                                             TrialState.FAIL, TrialState.RUNNING]
        first = trials[0]
        assert first.params == {"lr": 0.01, "width": 4, "q": 0.5, "kind": "adam", "net/p": 0.125}, first.params
        assert first.distributions == {
            "lr": FloatDistribution(1e-4, 1e-1, log=True), "width": IntDistribution(1, 8),
            "q": FloatDistribution(0, 1, step=0.25), "kind": CategoricalDistribution(["sgd", "adam"]),
            "net/p": FloatDistribution(0, 1)}, first.distributions
        assert first.value == 0.75 and study.best_value == 0.75
        assert first.intermediate_values[1] == 0.5 and math.isnan(first.intermediate_values[2])
        assert first.duration.total_seconds() == 1.25
        assert trials[1].value == 3 and trials[1].intermediate_values == {1: 3}
        study.tell(study.ask(), 1.0)  # and the study continues
        assert len(study.trials) == 6
    print("optuna", optuna.__version__, "reads it")


if __name__ == "__main__":
    main()
