#!/usr/bin/env python3
"""Makes tests/data/schedule/plans.json: random plans with the times, FLOPs, bytes and lower bounds that the independent
checker of skrull-plan/1 files (check_plan.py) computes for them, and zigzag shards. Tests read the file; nothing runs
this script at test time.

    python3 scripts/make_schedule_goldens.py CHECK_PLAN.py [--output tests/data/schedule]
"""

import argparse
import importlib.util
import json
import pathlib
import random

SMALL_GPU_MODEL = {"hidden_size": 896, "num_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
                   "head_dim": 64, "intermediate_size": 4864, "vocab_size": 151936}
LARGE_GPU_MODEL = {"hidden_size": 3584, "num_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
                   "head_dim": 128, "intermediate_size": 18944, "vocab_size": 152064}
TINY_MODEL = {"hidden_size": 64, "num_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 24, "intermediate_size": 100, "vocab_size": 333}

# Made up, with curves that are left below their first and above their last point.
CLUSTER = {
    "format": "skrull-profile/1", "name": "made-up cluster",
    "linear": {"peak_flops_by_hidden": [[1024, 4.1e14], [2048, 5.3e14], [3000, 5.9e14]],
               "efficiency": [[20, 0.04], [100, 0.17], [700, 0.66], [5000, 0.97], [12000, 1.0]]},
    "attention": {"peak_flops_by_head_dim": [[32, 1.9e14], [96, 4.4e14]],
                  "efficiency": [[30, 0.02], [300, 0.25], [2500, 0.77], [9000, 0.93], [30000, 1.0]]},
    "overhead": {"layer_forward_s": 5.5e-5, "layer_backward_s": 1.3e-4, "local_attention_forward_s": 6e-6,
                 "local_attention_backward_s": 1.4e-5, "ring_step_forward_s": 1.1e-5, "ring_step_backward_s": 2.2e-5},
    "links": {"intra": {"bytes_per_s": 3.1e11, "latency_s": 1.2e-5}, "inter": {"bytes_per_s": 4e10, "latency_s": 2.7e-5}},
    "grad_sync": {"bus_bytes_per_s": 2.5e11, "exposed_fraction": 0.3}}

# Compute so slow that transfers hide behind it, no gradient synchronisation, one point per peak.
PROCESSORS = {
    "format": "skrull-profile/1", "name": "made-up processors",
    "linear": {"peak_flops_by_hidden": [[64, 3e11]], "efficiency": [[8, 0.3], [64, 0.8], [512, 1.0]]},
    "attention": {"peak_flops_by_head_dim": [[64, 1.2e11]], "efficiency": [[64, 0.5], [1024, 1.0]]},
    "overhead": {"layer_forward_s": 2e-5, "layer_backward_s": 3e-5, "local_attention_forward_s": 1e-6,
                 "local_attention_backward_s": 2e-6, "ring_step_forward_s": 4e-6, "ring_step_backward_s": 5e-6},
    "links": {"intra": {"bytes_per_s": 8e9, "latency_s": 2e-6}, "inter": {"bytes_per_s": 1e9, "latency_s": 3e-5}}}

# name, model, profile, recompute, (replicas, CP ranks, ranks per node), sequences, longest, micro-batches per replica
RANDOM_CASES = [
    ("local-only", SMALL_GPU_MODEL, CLUSTER, "selective", (2, 1, 8), 20, 30000, 3),
    ("two-nodes", SMALL_GPU_MODEL, CLUSTER, "selective", (2, 8, 4), 60, 60000, 3),
    ("node-boundary-inside-replica", SMALL_GPU_MODEL, CLUSTER, "full", (3, 6, 4), 40, 40000, 2),
    ("large-model", LARGE_GPU_MODEL, CLUSTER, "selective", (1, 16, 8), 40, 100000, 2),
    ("large-model-full-recompute", LARGE_GPU_MODEL, CLUSTER, "full", (2, 7, 8), 30, 20000, 2),
    ("processors", TINY_MODEL, PROCESSORS, "selective", (2, 3, 4), 25, 500, 3),
    ("processors-full-recompute", TINY_MODEL, PROCESSORS, "full", (1, 4, 2), 12, 9, 2),
]
BOUND_CASES = [  # lengths, bucket: what limits the plan differs
    ("largest-sequence", SMALL_GPU_MODEL, CLUSTER, "selective", (4, 4, 8), [120000] + [500] * 30, 40000),
    ("memory", TINY_MODEL, CLUSTER, "selective", (4, 2, 8), [100] * 45, 500),
    ("work", LARGE_GPU_MODEL, CLUSTER, "full", (2, 4, 8), [3000] * 100 + [20000, 9000], 13000),
    ("a-million-tokens", LARGE_GPU_MODEL, CLUSTER, "selective", (1, 48, 8), [1000000, 70000, 1], 30000),
]


def random_micro_batch(rng, sequences, ranks):
    """Each sequence local on a random rank or on a random ring; some rings are used by several sequences."""
    local = [[] for _ in range(ranks)]
    distributed = []
    rings = [sorted(rng.sample(range(ranks), rng.randint(2, ranks))) for _ in range(3)] if ranks > 1 else []
    if ranks > 2:
        rings.append(list(range(ranks)))
    for sequence in sequences:
        if rings and rng.random() < 0.4:
            distributed.append({"sequence": sequence, "ranks": rng.choice(rings)})
        else:
            local[rng.randrange(ranks)].append(sequence)
    return {"local": local, "distributed": distributed}


def most_tokens(checker, plan):
    """Of a rank in a micro-batch."""
    most = 0
    for micro_batches in plan["micro_batches"]:
        for micro_batch in micro_batches:
            tokens = [sum(plan["sequences"][k] for k in local) for local in micro_batch["local"]]
            for entry in micro_batch["distributed"]:
                shards, _ = checker.shards(plan["sequences"][entry["sequence"]], len(entry["ranks"]))
                for rank, shard in zip(entry["ranks"], shards):
                    tokens[rank] += shard
            most = max(most, *tokens)
    return most


def random_plan(checker, rng, model, topology, sequences, longest, micro_batches):
    replicas, ranks, ranks_per_node = topology
    lengths = [max(1, int(longest ** rng.random())) for _ in range(sequences)]
    dealt = [[[] for _ in range(micro_batches)] for _ in range(replicas)]
    for k in range(sequences):
        dealt[k % replicas][rng.randrange(micro_batches)].append(k)
    plan = {"format": "skrull-plan/1", "policy": "random", "model": model,
            "topology": {"data_parallel": replicas, "context_parallel": ranks, "ranks_per_node": ranks_per_node},
            "bucket_tokens": 1, "sequences": lengths,
            "micro_batches": [[random_micro_batch(rng, m, ranks) for m in replica if m] for replica in dealt],
            "predicted": {"step_seconds": 0.0}, "scheduling_seconds": 0.0}
    plan["bucket_tokens"] = most_tokens(checker, plan) + rng.randrange(100)
    errors = checker.validate(plan)
    assert not errors, errors
    return plan


def evaluated_plan(checker, rng, name, model, profile, recompute, topology, sequences, longest, micro_batches):
    plan = random_plan(checker, rng, model, topology, sequences, longest, micro_batches)
    result = checker.evaluate(plan, profile, recompute)
    plan["predicted"]["step_seconds"] = result["schedule_seconds"]
    kept = ("schedule_seconds", "step_seconds", "dp_seconds", "rank_seconds", "rank_flops", "rank_comm_bytes",
            "distributed_sequences", "peak_tokens_per_rank", "bound")
    return {"name": name, "profile": profile["name"], "recompute": recompute, "plan": plan,
            "expected": {key: result[key] for key in kept}}


def bound_case(checker, name, model, profile, recompute, topology, lengths, bucket):
    replicas, ranks, ranks_per_node = topology
    cost = checker.Cost(model, profile, recompute)
    return {"name": name, "profile": profile["name"], "recompute": recompute, "model": model,
            "topology": {"data_parallel": replicas, "context_parallel": ranks, "ranks_per_node": ranks_per_node},
            "bucket_tokens": bucket, "sequences": lengths,
            "bound": checker.lower_bound(lengths, cost, replicas, ranks, ranks_per_node, bucket)}


def zigzag_cases(checker):
    cases = []
    for length, ring in ((1, 2), (7, 3), (11, 3), (100, 7), (4097, 8), (131072, 8), (1000003, 48), (2 ** 31 + 5, 64)):
        tokens, area = checker.shards(length, ring)
        cases.append({"length": length, "ring": ring, "tokens": tokens, "causal_area": area})
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checker", type=pathlib.Path, help="path of check_plan.py")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("tests/data/schedule"))
    arguments = parser.parse_args()
    spec = importlib.util.spec_from_file_location("check_plan", arguments.checker)
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    rng = random.Random(20250524)
    goldens = {"profiles": [CLUSTER, PROCESSORS],
               "plans": [evaluated_plan(checker, rng, *case) for case in RANDOM_CASES],
               "bounds": [bound_case(checker, *case) for case in BOUND_CASES],
               "zigzag": zigzag_cases(checker)}
    arguments.output.mkdir(parents=True, exist_ok=True)
    parts = [f'"{key}":[\n' + ",\n".join(json.dumps(value, separators=(",", ":")) for value in values) + "]"
             for key, values in goldens.items()]
    (arguments.output / "plans.json").write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main()
