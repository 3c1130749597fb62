"""Hugging Face's Trainer: the group is made before TrainingArguments, which then takes it as it is."""

from __future__ import annotations

import tempfile

import tiny
import torch
import torch.distributed as dist
from torch_collab.integrations import CollabCallback
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

dist.init_process_group("collab")

torch.manual_seed(tiny.RANK)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2))
samples = [{"input_ids": row, "labels": row} for row in torch.arange(2 * 8 * tiny.STEPS * 8).view(-1, 8) % 16]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        per_device_train_batch_size=8,
        max_steps=tiny.STEPS,
        learning_rate=0.01,
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        average_tokens_across_devices=False,
    )
    assert arguments.world_size == 2 and arguments.process_index == tiny.RANK
    trainer = Trainer(model, arguments, train_dataset=samples, eval_dataset=samples)
    trainer.add_callback(CollabCallback(trainer))
    trainer.train()
    rounds = [logged for logged in trainer.state.log_history if "collab/round" in logged]
    assert [logged["collab/round"] for logged in rounds][:2] == [1, 2], rounds
    assert all(logged["collab/contributors"] in (1, 2) and logged["step"] >= 5 for logged in rounds)
    assert 0 <= rounds[1]["collab/waiting_share"] <= 1
    assert trainer.evaluate()["eval_loss"] < 3  # gathered from both sites
tiny.end(model)
