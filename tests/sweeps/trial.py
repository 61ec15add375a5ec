"""A trial of an Optuna study: a toy training with memory on the GPU, which the study's pruner may stop at each epoch.
The first trial trains until all others are over.
usage: trial.py JOURNAL EPOCHS"""
import ctypes
import sys
import time

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

journal, epochs = sys.argv[1], int(sys.argv[2])
BYTES = 8 << 20


def gpu():
    driver = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == 0 and driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(BYTES)) == 0
    return lambda: driver.cuMemsetD8_v2(address, 1, ctypes.c_size_t(BYTES))


def others_run(study):
    return not all(trial.state.is_finished() for trial in study.get_trials(deepcopy=False) if trial.number != 0)


def objective(trial):
    work, loss = gpu(), trial.suggest_float("loss", 0, 10)
    for epoch in range(epochs):
        assert work() == 0
        while trial.number == 0 and epoch > 0 and others_run(trial.study):
            assert work() == 0
            time.sleep(0.05)
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return loss


study = optuna.load_study(study_name="toy", storage=JournalStorage(JournalFileBackend(journal)),
                          pruner=optuna.pruners.ThresholdPruner(upper=1))
study.optimize(objective, n_trials=1)
