"""What ci/wheel.sh runs in a fresh environment: the wheel registers, trains a step, and its files are whole."""

import importlib.metadata
import os
import pathlib

import torch
import torch.distributed as dist


def main() -> None:
    assert "collab" in dist.Backend.backend_list, "import torch did not register the backend"
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", COLLAB_SYNC_EVERY="1")
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("collab", store=store, rank=0, world_size=1)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)), "the step did nothing"
    total = torch.arange(5.0)
    dist.all_reduce(total)
    assert torch.equal(total, torch.arange(5.0))
    dist.destroy_process_group()

    import torch_collab.native

    assert torch_collab.native.build_info()["ucx"], "this extension was built without UCX's headers"
    folder = pathlib.Path(torch_collab.__file__).parent
    for name in ("py.typed", "_C.pyi"):
        assert (folder / name).is_file(), f"the wheel lacks {name}"
    emulator = folder / "bin" / "collab-lab-emulator"
    assert os.access(emulator, os.X_OK), "the wheel lacks what `collab lab` runs"
    scripts = importlib.metadata.entry_points(group="console_scripts", name="collab")
    assert len(scripts) == 1, "the wheel lacks the console script"
    print(f"torch-collab {importlib.metadata.version('torch-collab')} works from {folder}")


if __name__ == "__main__":
    main()
