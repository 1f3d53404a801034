"""The attention kernel is chosen in a fixed order, and the run reports it."""

from pathlib import Path

import torch
from torch.nn.attention import SDPBackend

from tests.trainer.jobs import build_here, events, write_job
from trainwright_trainer.runtime.attention_kernels import attention_kernel, prefer_attention_kernels


def test_cudnn_comes_before_flash_attention() -> None:
    prefer_attention_kernels()
    order = torch._C._get_sdp_priority_order()
    wanted = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    assert order[:3] == [kind.value for kind in wanted]


def test_the_reported_kernel_is_the_one_that_torch_chooses() -> None:
    half = torch.empty((), dtype=torch.bfloat16)
    assert attention_kernel(4, 4, 64, 32, half) == "flash attention"
    assert attention_kernel(4, 2, 64, 32, half) in ("flash attention", "plain matmuls")


def test_a_run_on_a_gpu_reports_its_kernel(tmp_path: Path, data: Path, cuda: str) -> None:
    model = {"layers": 1, "width": 64, "heads": 2, "kv_heads": 1}
    job_file = write_job(tmp_path, data, 1, job={"device": "cuda"}, model=model, precision={"kind": "bf16"})
    build_here(job_file, cuda)
    (note,) = (one["message"] for one in events(job_file, "note") if "Attention" in one["message"])
    assert note.startswith("Attention is computed by ")
