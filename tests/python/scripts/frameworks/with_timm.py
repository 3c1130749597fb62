"""timm, as its train.py uses it: the group, a model with BatchNorm, its loader, its optimizer, its averages."""

from __future__ import annotations

from argparse import Namespace

import torch

# PyPI's torchvision is made for a torch with CUDA. Beside another its library is not loaded, and its import fails for
# want of these two, which nothing here calls.
operators = torch.library.Library("torchvision", "DEF")
if not hasattr(torch.ops.torchvision, "nms"):
    operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import tiny  # noqa: E402  # after the operators are there
from timm import create_model  # noqa: E402
from timm.data import create_loader  # noqa: E402
from timm.loss import LabelSmoothingCrossEntropy  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.scheduler import create_scheduler_v2  # noqa: E402
from timm.task import ClassificationTask  # noqa: E402
from timm.utils import distribute_bn, init_distributed_device, reduce_tensor  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402
from torchvision.transforms import functional  # noqa: E402

arguments = Namespace(device="cpu", dist_backend="collab")
device = init_distributed_device(arguments)
assert arguments.distributed and arguments.world_size == 2 and arguments.rank == tiny.RANK


class Squares(Dataset):  # type: ignore[type-arg]
    """Pictures of one colour each."""

    transform = None

    def __len__(self) -> int:
        return 2 * 8 * tiny.STEPS

    def __getitem__(self, number: int) -> tuple[object, int]:
        colour = number % 3
        pixels = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(number)) / 4
        pixels[colour] += 0.5
        return self.transform(functional.to_pil_image(pixels)), colour


torch.manual_seed(tiny.RANK)
model = create_model("test_resnet", num_classes=3, in_chans=3).to(device)
task = ClassificationTask(model, criterion=LabelSmoothingCrossEntropy())
task.prepare_distributed()
optimizer = create_optimizer_v2(model, opt="adamw", lr=0.01)
loader = create_loader(
    Squares(), input_size=(3, 32, 32), batch_size=8, is_training=True, use_prefetcher=False, num_workers=0,
    distributed=True, device=device,
)  # fmt: skip
scheduler, _ = create_scheduler_v2(optimizer, num_epochs=1, updates_per_epoch=len(loader))
for number, (inputs, labels) in enumerate(loader):
    loss = task(inputs, labels)["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step_update(number + 1)
mean = reduce_tensor(loss.detach(), arguments.world_size)
assert 0 < float(mean) < 3
distribute_bn(model, arguments.world_size, reduce=True)
tiny.end(model)
