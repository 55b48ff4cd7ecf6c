# SPDX-License-Identifier: Apache-2.0
"""reporting.py under Ray Train: ray_reporting.py CONFIG RANKS"""
import json
import sys

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import reporting

config = json.loads(sys.argv[1])
ray.init(num_cpus=int(sys.argv[2]) + 1, include_dashboard=False)
TorchTrainer(reporting.train, train_loop_config=config, scaling_config=ScalingConfig(num_workers=int(sys.argv[2])),
             run_config=RunConfig(name="ray", storage_path=config["storage"])).fit()
