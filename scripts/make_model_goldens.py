#!/usr/bin/env python3
"""Makes tests/data/model: small random models with logits, losses and gradients from PyTorch and transformers, AdamW
runs and learning rates. Tests read the files; nothing runs this script at test time.

    pip install torch transformers safetensors numpy
    python3 scripts/make_model_goldens.py [--output tests/data/model]

tests/data/model/README.md describes every file it writes.
"""

import argparse
import copy
import itertools
import json
import pathlib
import platform
import shutil
import types

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer
from transformers.models.qwen2 import modeling_qwen2

IGNORED_LABEL = -100

# name -> the model's shape and its sequences. "as_saved": config.json stays as transformers 5 writes it
# (rope_parameters, dtype, layer_types); otherwise it has the form of the published Qwen2.5 models (rope_theta,
# torch_dtype).
# Where head_dim is given, num_attention_heads * head_dim differs from hidden_size and config.json holds "head_dim".
CASES = {
    "tied_mha_d16": {
        "config": {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 45,
                   "vocab_size": 97, "tie_word_embeddings": True, "rope_theta": 1e4, "rms_norm_eps": 1e-6},
        "sequence_lengths": [1, 2, 7, 13, 30], "unsupervised": 2, "as_saved": False, "dtype": "float32"},
    "untied_gqa4_d16": {
        "config": {"hidden_size": 48, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 53,
                   "vocab_size": 131, "tie_word_embeddings": False, "rope_theta": 1e6, "rms_norm_eps": 1e-5,
                   "head_dim": 16},
        "sequence_lengths": [13, 1, 30, 2, 7], "unsupervised": 0, "as_saved": True, "dtype": "float32"},
    "tied_gqa7_d64": {
        "config": {"hidden_size": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 35,
                   "vocab_size": 131, "tie_word_embeddings": True, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
                   "head_dim": 64},
        "sequence_lengths": [30, 2, 1, 13, 7], "unsupervised": 4, "as_saved": False, "dtype": "float32"},
    "untied_gqa2_d128": {
        "config": {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 33,
                   "vocab_size": 97, "tie_word_embeddings": False, "rope_theta": 1e4, "rms_norm_eps": 1e-5,
                   "head_dim": 128},
        "sequence_lengths": [2, 13, 7, 30, 1], "unsupervised": 2, "as_saved": False, "dtype": "float32"},
    # Sequences longer than the usual attention tiles of 64 and 128.
    "untied_gqa2_d16_long": {
        "config": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 51,
                   "vocab_size": 97, "tie_word_embeddings": False, "rope_theta": 1e6, "rms_norm_eps": 1e-6},
        "sequence_lengths": [5, 131, 1, 64, 65], "unsupervised": 0, "as_saved": True, "dtype": "float32"},
    "tied_mha_d16_bf16": {
        "config": {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 45,
                   "vocab_size": 97, "tie_word_embeddings": True, "rope_theta": 1e4, "rms_norm_eps": 1e-6},
        "sequence_lengths": [1, 2, 7, 13, 30], "unsupervised": 2, "as_saved": False, "dtype": "bfloat16"},
}

ADAMW = {"model": "tied_mha_d16", "steps": 20, "sequences_per_step": 3, "warmup_steps": 4, "learning_rate": 1e-2,
         "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-8, "weight_decay": 0.1, "max_grad_norm": 1.0}

LEARNING_RATE = 3e-4
# lr_scheduler_type of transformers.get_scheduler -> the scheduler_specific_kwargs it is tried with.
SCHEDULES = {
    "constant": [{}],
    "constant_with_warmup": [{}],
    "linear": [{}],
    "cosine": [{}],
    "cosine_with_min_lr": [{"min_lr_rate": 0.1}],
    "warmup_stable_decay": [{}, {"decay_type": "linear"}, {"decay_type": "1-sqrt"}, {"min_lr_ratio": 0.1}],
}
WARMUP_STEPS = (0, 1, 5)
# total steps -> num_decay_steps of warmup_stable_decay; num_stable_steps is left out (what remains).
DECAY_STEPS = {20: 6, 7: 2}


# Models -------------------------------------------------------------------------------------------------------------


def published_form(config, dtype):
    """config.json as published Qwen2.5 models have it."""
    return {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 256, "max_window_layers": 2,
        "model_type": "qwen2", "num_hidden_layers": 2, "sliding_window": 256, "torch_dtype": dtype,
        "use_cache": True, "use_sliding_window": False, **config}


def randomise(model, generator):
    """Every parameter away from 0 and 1: norm weights 1 +- 0.3, biases +- 0.3, matrices N(0, 1 / columns)."""
    for name, parameter in model.named_parameters():
        values = generator.standard_normal(tuple(parameter.shape))
        if name.endswith("norm.weight"):
            values = 1.0 + 0.3 * values
        elif name.endswith(".bias"):
            values = 0.3 * values
        elif name.endswith("embed_tokens.weight"):
            values = 0.3 * values
        else:
            values = values / np.sqrt(parameter.shape[1])
        parameter.data.copy_(torch.from_numpy(values))


def write_model(folder, case, generator):
    """A complete Hugging Face model folder."""
    config = Qwen2Config(**published_form(case["config"], case["dtype"]))
    model = Qwen2ForCausalLM(config)
    randomise(model, generator)
    model.to(getattr(torch, case["dtype"])).save_pretrained(folder)
    if not case["as_saved"]:
        text = json.dumps(dict(sorted(published_form(case["config"], case["dtype"]).items())), indent=2)
        (folder / "config.json").write_text(text + "\n")


def load(folder, precision):
    """The folder's model: float32 is transformers as it is; float64 computes everything in float64."""
    attention = "sdpa" if precision == torch.float64 else "eager"
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    model.config.use_cache = False
    return in_double(model) if precision == torch.float64 else model


def in_double(model):
    """Also where transformers goes through float32: norms and rotary angles (and eager attention's softmax, for which
    reason scaled_dot_product_attention stands in)."""

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotary(self, x, position_ids):
        size = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
        exponents = torch.arange(0, size, 2, dtype=torch.float64) / size
        frequencies = self.config.rope_parameters["rope_theta"] ** -exponents
        angles = position_ids[..., None].double() * torch.cat((frequencies, frequencies))
        return angles.cos(), angles.sin()

    model.double()
    for module in model.modules():
        if isinstance(module, modeling_qwen2.Qwen2RMSNorm):
            module.forward = types.MethodType(norm, module)
        elif isinstance(module, modeling_qwen2.Qwen2RotaryEmbedding):
            module.forward = types.MethodType(rotary, module)
    return model


# Batches and losses -------------------------------------------------------------------------------------------------


def random_batch(lengths, vocab_size, generator, unsupervised=None):
    """Token ids and shifted labels of sequences laid end to end: label[t] is the next token of the same sequence, none
    for its last token, about a third masked, and none at all in the sequence of index `unsupervised`."""
    ids = [generator.integers(0, vocab_size, length) for length in lengths]
    labels = [np.append(sequence[1:], IGNORED_LABEL) for sequence in ids]
    for index, label in enumerate(labels):
        label[generator.random(len(label)) < 0.3] = IGNORED_LABEL
        if index == unsupervised:
            label[:] = IGNORED_LABEL
    parts = {"input_ids": np.concatenate(ids), "labels": np.concatenate(labels), "sequence_lengths": np.array(lengths)}
    return {key: torch.from_numpy(values.astype(np.int32)) for key, values in parts.items()}


def forward(model, batch):
    """Logits [tokens, vocabulary], each sequence computed alone; and per sequence its sum of cross-entropies (a
    tensor) and number of supervised tokens."""
    lengths = batch["sequence_lengths"].tolist()
    all_logits, sums, counts = [], [], []
    for ids, labels in zip(batch["input_ids"].long().split(lengths), batch["labels"].long().split(lengths)):
        logits = model(input_ids=ids[None], use_cache=False).logits[0]
        all_logits.append(logits)
        sums.append(cross_entropy(logits, labels, ignore_index=IGNORED_LABEL, reduction="sum"))
        counts.append(int((labels != IGNORED_LABEL).sum()))
    return torch.cat(all_logits), sums, counts


def token_mean(sums, counts):
    return sum(sums) / sum(counts)


def sequence_mean(sums, counts):
    """Every sequence with a supervised token weighs the same."""
    means = [total / count for total, count in zip(sums, counts) if count > 0]
    return sum(means) / len(means)


def gradients(model, loss):
    names, parameters = zip(*model.named_parameters())
    return dict(zip(names, torch.autograd.grad(loss, parameters, retain_graph=True)))


def global_norm(tensors):
    return torch.sqrt(sum(tensor.double().square().sum() for tensor in tensors.values()))


def check_gradients(model, batch, reference, generator):
    """Central difference along one random direction. Any float32 left inside would show as an error near 1e-3."""
    direction = {name: torch.from_numpy(generator.standard_normal(tuple(value.shape)))
                 for name, value in reference.items()}
    step = 1e-5

    def loss_at(offset):
        moved = copy.deepcopy(model)
        for name, parameter in moved.named_parameters():
            parameter.data.add_(direction[name], alpha=offset)
        with torch.no_grad():
            return float(token_mean(*forward(moved, batch)[1:]))

    numeric = (loss_at(step) - loss_at(-step)) / (2 * step)
    analytic = float(sum((direction[name] * value).sum() for name, value in reference.items()))
    assert abs(numeric - analytic) < 1e-6 * max(1.0, abs(analytic)), (numeric, analytic)


def worst_difference(values, reference):
    """The largest relative difference |a - b| / |b| (2-norms) over tensors, and the tensor's name."""
    return max((float((values[name].double() - value).norm() / value.norm()), name)
               for name, value in reference.items())


def scalar(value):
    return torch.tensor([float(value)], dtype=torch.float32)


def make_case(name, case, seed, output):
    generator = np.random.default_rng(seed)
    folder = output / name
    shutil.rmtree(folder, ignore_errors=True)
    write_model(folder, case, generator)
    batch = random_batch(case["sequence_lengths"], case["config"]["vocab_size"], generator, case["unsupervised"])

    model = load(folder, torch.float64)
    logits, sums, counts = forward(model, batch)
    loss, per_sequence = token_mean(sums, counts), sequence_mean(sums, counts)
    grads, per_sequence_grads = gradients(model, loss), gradients(model, per_sequence)
    assert all(float(value.abs().max()) > 1e-6 for value in grads.values()), "a gradient is zero"
    check_gradients(model, batch, grads, generator)

    save_file({**batch, "logits": logits.detach().float(), "loss": scalar(loss),
               "grad_norm": scalar(global_norm(grads)), "sequence_mean_loss": scalar(per_sequence),
               "sequence_mean_grad_norm": scalar(global_norm(per_sequence_grads)),
               **{f"grad.{key}": value.float().contiguous() for key, value in grads.items()}},
              folder / "golden.safetensors")

    plain = load(folder, torch.float32)
    plain_logits, plain_sums, _ = forward(plain, batch)
    plain_loss = token_mean(plain_sums, counts)
    worst, worst_name = worst_difference(gradients(plain, plain_loss), grads)
    assert worst < 1e-5, f"{worst_name}: transformers in float32 is {worst} away"
    return {"seed": seed, "parameters": sum(value.numel() for value in grads.values()),
            "supervised_tokens_per_sequence": counts, "loss": float(loss), "grad_norm": float(global_norm(grads)),
            "sequence_mean_loss": float(per_sequence),
            "sequence_mean_grad_norm": float(global_norm(per_sequence_grads)),
            "float32_transformers": {
                "loss_relative": abs(float(plain_loss) / float(loss) - 1),
                "logits_max_absolute": float((plain_logits - logits).abs().max()),
                "logits_max": float(logits.abs().max()),
                "gradient_worst_relative": worst, "gradient_worst_tensor": worst_name}}


# AdamW --------------------------------------------------------------------------------------------------------------


def optimizer_for(named_parameters, decayed):
    groups = [{"params": [value for name, value in named_parameters if (name in decayed) == decay],
               "weight_decay": ADAMW["weight_decay"] if decay else 0.0} for decay in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["learning_rate"], betas=(ADAMW["adam_beta1"], ADAMW["adam_beta2"]),
                                  eps=ADAMW["adam_epsilon"])
    schedule = transformers.get_cosine_schedule_with_warmup(
        optimizer, num_warmup_steps=ADAMW["warmup_steps"], num_training_steps=ADAMW["steps"])
    return optimizer, schedule


def update(named_parameters, optimizer, schedule):
    """Clip, update, advance the schedule: the gradient norm before clipping and the learning rate used."""
    norm = torch.nn.utils.clip_grad_norm_([value for _, value in named_parameters], ADAMW["max_grad_norm"])
    rate = schedule.get_last_lr()[0]
    optimizer.step()
    schedule.step()
    return float(norm), rate


def train(folder, batches, decayed, precision):
    model = load(folder, precision)
    parameters = list(model.named_parameters())
    optimizer, schedule = optimizer_for(parameters, decayed)
    rows = []
    for batch in batches:
        optimizer.zero_grad()
        loss = token_mean(*forward(model, batch)[1:])
        loss.backward()
        rows.append((float(loss.detach()), *update(parameters, optimizer, schedule)))
    return np.array(rows), {name: value.detach() for name, value in parameters}


def make_training_run(output, seed):
    generator = np.random.default_rng(seed)
    folder = output / ADAMW["model"]
    vocab_size = CASES[ADAMW["model"]]["config"]["vocab_size"]
    batches = []
    for step in range(ADAMW["steps"]):
        lengths = [int(length) for length in generator.integers(2, 25, ADAMW["sequences_per_step"])]
        # One sequence without supervised tokens in every fifth step.
        batches.append(random_batch(lengths, vocab_size, generator, unsupervised=1 if step % 5 == 4 else None))
    start = dict(load(folder, torch.float32).named_parameters())
    # The Trainer's list also names the tied head, which is the embedding.
    trainer_names = Trainer.get_decay_parameter_names(None, load(folder, torch.float32))
    decayed = [name for name in trainer_names if name in start]

    rows, final = train(folder, batches, decayed, torch.float64)
    plain_rows, plain_final = train(folder, batches, decayed, torch.float32)
    save_file({**{key: torch.cat([batch[key] for batch in batches]) for key in batches[0]},
               **{key: torch.from_numpy(rows[:, column].astype(np.float32))
                  for column, key in enumerate(("loss", "grad_norm", "learning_rate"))},
               **{f"final.{name}": value.float().contiguous() for name, value in final.items()}},
              output / "adamw" / "training.safetensors")
    worst, worst_name = worst_difference(plain_final, final)
    moved = {name: float((final[name] - start[name].double()).norm() / start[name].double().norm()) for name in final}
    return {**ADAMW, "seed": seed, "decayed_parameters": decayed,
            "steps_clipped": int((rows[:, 1] > ADAMW["max_grad_norm"]).sum()),
            "first_loss": rows[0, 0], "last_loss": rows[-1, 0], "least_relative_movement": min(moved.values()),
            "float32_torch": {
                "loss_worst_relative": float(np.abs(plain_rows[:, 0] / rows[:, 0] - 1).max()),
                "grad_norm_worst_relative": float(np.abs(plain_rows[:, 1] / rows[:, 1] - 1).max()),
                "final_worst_relative": worst, "final_worst_tensor": worst_name,
                "final_max_absolute": max(float((plain_final[name] - final[name]).abs().max()) for name in final)}}


def make_optimizer_run(output, seed):
    """The optimizer alone: given gradients instead of a model, the values after every step."""
    generator = np.random.default_rng(seed)
    parameters = [(name, torch.nn.Parameter(torch.from_numpy(generator.standard_normal(shape))))
                  for name, shape in (("matrix", (5, 7)), ("bias", (11,)))]
    stored = {f"start.{name}": value.detach().float() for name, value in parameters}
    for name, value in parameters:
        value.data.copy_(stored[f"start.{name}"])
    optimizer, schedule = optimizer_for(parameters, ["matrix"])
    rows = []
    history = {f"{kind}.{name}": [] for kind in ("grad", "value") for name, _ in parameters}
    for step in range(ADAMW["steps"]):
        for name, value in parameters:
            # Norms from about 0.06 to 60, so that some steps are clipped and others are not.
            gradient = generator.standard_normal(value.shape) * 10.0 ** (step % 4 - 2)
            history[f"grad.{name}"].append(torch.from_numpy(gradient).float())
            value.grad = history[f"grad.{name}"][-1].double()
        rows.append(update(parameters, optimizer, schedule))
        for name, value in parameters:
            history[f"value.{name}"].append(value.detach().float().clone())
    stored |= {key: torch.stack(values) for key, values in history.items()}
    for name, value in parameters:
        for key in ("exp_avg", "exp_avg_sq"):
            stored[f"{key}.{name}"] = optimizer.state[value][key].float()
    for column, key in enumerate(("grad_norm", "learning_rate")):
        stored[key] = torch.tensor([row[column] for row in rows], dtype=torch.float32)
    save_file(stored, output / "adamw" / "optimizer.safetensors")


# Learning rates -----------------------------------------------------------------------------------------------------


def learning_rates(name, total, warmup, arguments):
    """The learning rate of step 0, 1, ..., total - 1, as used by a loop that steps the optimizer, then the schedule."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LEARNING_RATE)
    schedule = transformers.get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total,
                                          scheduler_specific_kwargs=arguments)
    rates = []
    for _ in range(total):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def make_learning_rates(output):
    rows = []
    for name, variants in SCHEDULES.items():
        function = transformers.optimization.TYPE_TO_SCHEDULER_FUNCTION[name].__name__
        for variant, total, warmup in itertools.product(variants, DECAY_STEPS, WARMUP_STEPS):
            decay = {"num_decay_steps": DECAY_STEPS[total]} if name == "warmup_stable_decay" else {}
            arguments = {**decay, **variant}
            rows.append({"lr_scheduler_type": name, "function": function, "arguments": arguments,
                         "learning_rate": LEARNING_RATE, "total_steps": total, "warmup_steps": warmup,
                         "rates": learning_rates(name, total, warmup, arguments)})
    lines = ",\n".join(json.dumps(row) for row in rows)
    (output / "learning_rates.json").write_text(f"[\n{lines}\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--output", type=pathlib.Path, default=root / "tests" / "data" / "model")
    output = parser.parse_args().output
    torch.set_num_threads(1)

    (output / "adamw").mkdir(parents=True, exist_ok=True)
    summary = {"versions": {"python": platform.python_version(), "torch": torch.__version__,
                            "transformers": transformers.__version__, "numpy": np.__version__}, "cases": {}}
    for number, (name, case) in enumerate(CASES.items()):
        summary["cases"][name] = make_case(name, case, 1000 + number, output)
    training = make_training_run(output, 2000)
    (output / "adamw" / "settings.json").write_text(json.dumps(training, indent=2) + "\n")
    make_optimizer_run(output, 2001)
    make_learning_rates(output)
    for file in output.rglob("*.safetensors"):
        file.chmod(0o644)
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
