"""Every way to reach the driver API, two programs at a time under libunified, mode on."""
import harness
import linking

US = ("libunified.so",)
MODES = [
    ("driver_linked", "mode_linked", US),
    ("driver_dlopen", "mode_dlopen", US),
    ("driver_proc_address", "mode_proc_address", US),
    ("driver_per_thread_stream", "mode_per_thread", US),
    ("driver_reloaded", "mode_reopened", US, {"MODE": "reloaded"}),
    ("driver_closed_in_use", "mode_reopened", US, {"MODE": "closed"}),
    ("plugin_deepbind", "mode_deepbind", US),
    ("python_ctypes", "mode_ctypes.py", US),
    ("python_cuda_bindings", "mode_cuda_python.py", US),
    ("other_hook_after_us", "mode_linked", ("libunified.so", "libgs_hook_next.so")),
    ("other_hook_before_us", "mode_linked", ("libgs_hook_next.so", "libunified.so")),
    ("other_dlsym_after_us", "mode_dlopen", ("libunified.so", "libgs_hook_dlsym.so")),
    ("other_dlsym_before_us", "mode_dlopen", ("libgs_hook_dlsym.so", "libunified.so")),
]

harness.main(lambda test: linking.run_modes(test, MODES))
