"""Every way to use the runtime, two programs at a time under libunified, mode on: with the tests' stand-in for it, with
NVIDIA's from plain C, and in programs made by nvcc."""
import harness
import linking

US = ("libunified.so",)
STAND_IN = ["fakert_static", "fakert_shared", "fakert_dlopen", "fakert_both_dlopen"]
STATIC = ["cudart_static", "nvcc_static", "nvcc_per_thread"]
SHARED = ["cudart_shared", "cudart_dlopen", "cudart_both_dlopen", "nvcc_shared"]


def skip(reason):
    raise harness.Skip(reason)


def skip_all(test, names, reason):
    for name in names:
        test.case(name, lambda: skip(reason))


def run_all(test):
    linking.run_modes(test, [(name, name, US) for name in STAND_IN])
    if harness.is_simulated():
        skip_all(test, STATIC + SHARED, "NVIDIA's runtime needs NVIDIA's driver")
        return
    linking.run_modes(test, [(name, name, US) for name in STATIC])
    library = (test.programs / "cudart.txt").read_text()
    folder = harness.library_folder(library)
    if folder is None:
        skip_all(test, SHARED, f"{library} is neither in a CUDA toolkit nor among Python's packages")
        return
    linking.run_modes(test, [(name, name, US) for name in SHARED], [folder])


harness.main(run_all)
