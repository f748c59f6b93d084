"""Which device a pod runs on."""

from podracer.errors import DeviceError


def resolve_device(wanted: str) -> tuple[str, str | None]:
    """Return the device to use, and a remark if that is not what one might expect.

    Raises:
        DeviceError: if `cuda` is wanted: there is no GPU, or the GPU path is not built yet.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    if wanted == "cuda":
        raise DeviceError(
            "pod.device: cuda was asked for, but "
            + ("the GPU path is not built yet" if has_gpu else "this machine has no CUDA GPU")
            + ". Set pod.device to cpu or auto."
        )
    if wanted == "auto" and has_gpu:
        return (
            "cpu",
            "pod.device: auto found a GPU, but the GPU path is not built yet: using the CPU",
        )
    if wanted == "auto":
        return "cpu", "pod.device: auto found no CUDA GPU: using the CPU"
    return "cpu", None
