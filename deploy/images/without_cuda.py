"""Removes torch and its CUDA packages from a file of requirements, and prints the requirement for torch: `torch==VERSION`.

They are installed from an index with builds for CPUs, which need none of those packages.
"""

import re
import sys
from pathlib import Path

_CUDA = re.compile(r"(torch|triton|bitsandbytes|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
_TORCH = re.compile(r"torch==[^ ;\\]+")


def without_cuda(text: str) -> str:
    """Return the requirements without them. Each begins at the start of a line, its hashes are indented."""
    entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    return "".join(entry for entry in entries if not _CUDA.match(entry))


if __name__ == "__main__":
    file = Path(sys.argv[1])
    requirements = file.read_text("utf-8")
    print(*re.findall(rf"^{_TORCH.pattern}", requirements, flags=re.MULTILINE))
    file.write_text(without_cuda(requirements), "utf-8")
