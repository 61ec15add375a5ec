"""An experiment of Ray Tune: each trial has a place on a GPU and memory there, and a scheduler stops the bad ones early.
The first trial goes on once the others have begun; these begin once it has reported. Prints an object of JSON.
usage: ray_trials.py FOLDER LOSS...     the first loss is a good one"""
import ctypes
import json
import os
import sys
import time

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

folder, losses = sys.argv[1], [float(loss) for loss in sys.argv[2:]]
PLACES, EPOCHS, MIB = 4, 5, 1 << 20
BYTES = (40 * MIB, 30 * MIB)  # of the first trial, and of the others: no two fit on the card


def trial(config):
    def note(number):
        with open(os.path.join(folder, f"trial{number}"), "w", encoding="utf-8"):
            pass

    def wait_for(numbers):
        while not all(os.path.exists(os.path.join(folder, f"trial{number}")) for number in numbers):
            time.sleep(0.05)

    driver, number = ctypes.CDLL("libcuda.so.1"), config["number"]
    size, context, address = ctypes.c_size_t(BYTES[number > 0]), ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == 0 and driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(address), size) == 0
    held = ctypes.create_string_buffer(size.value)
    if number > 0:
        wait_for([0])
    for epoch in range(1, EPOCHS + 1):
        assert driver.cuMemsetD8_v2(address, 10 * number + epoch, size) == 0
        if epoch == 2 and number == 0:
            wait_for(range(1, len(config["losses"])))
        assert driver.cuMemcpyDtoH_v2(held, address, size) == 0
        right = held.raw == bytes([10 * number + epoch]) * size.value
        if number > 0:
            note(number)
        tune.report({"loss": config["losses"][number], "epochs": epoch, "pid": os.getpid(), "right": right})
        if number == 0:
            note(0)


def main():
    ray.init(num_cpus=PLACES, num_gpus=1, include_dashboard=False, _temp_dir=os.path.join(folder, "ray"))
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1, "gpu": 1 / PLACES}),
        param_space={"number": tune.grid_search(list(range(len(losses)))), "losses": losses},
        tune_config=tune.TuneConfig(metric="loss", mode="min",
                                    scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2 * len(losses))),
        run_config=tune.RunConfig(storage_path=os.path.join(folder, "results"), verbose=0))
    results = tuner.fit()
    print(json.dumps({
        "errors": [str(error) for error in results.errors], "best": results.get_best_result().config["number"],
        "trials": [{key: result.metrics[key] for key in ("loss", "epochs", "pid", "right")} for result in results]}))


main()
