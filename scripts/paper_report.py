#!/usr/bin/env python3
"""Runs `skrull plan --compare all` at the settings of the Skrull paper (arXiv 2505.19609) and writes the tables of
docs/scheduling.md between its <!-- table: ... --> marks, and the plots docs/images/speedups.svg and sweeps.svg.

    python3 scripts/paper_report.py [--skrull build/skrull] [--docs docs] [--batches 60]

Everything is predicted with the shipped hardware profile h100_4x8; no GPU is used. Python's standard library only.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MODELS = {
    "Qwen2.5-0.5B": {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
                     "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True,
                     "bucket_tokens": 26000, "cutoff_len": 131072},
    "Qwen2.5-7B": {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
                   "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False,
                   "bucket_tokens": 13000, "cutoff_len": 104000},
}
DATA_SETS = {"wikipedia": "Wikipedia", "lmsys": "LMSYS-Chat-1M", "chatqa2": "ChatQA2-Long-SFT"}
RANKS_PER_NODE = 8
# Published speed-up over DeepSpeed. The paper plots them; these figures are read from a secondary source.
PAPER_SPEEDUPS = {("Qwen2.5-0.5B", "wikipedia"): 7.54, ("Qwen2.5-0.5B", "lmsys"): 6.17,
                  ("Qwen2.5-0.5B", "chatqa2"): 2.79, ("Qwen2.5-7B", "wikipedia"): 2.60,
                  ("Qwen2.5-7B", "lmsys"): 2.14, ("Qwen2.5-7B", "chatqa2"): 1.35}
PAPER_ABLATION = {"deepspeed": 1.0, "round-robin": 1.17, "skrull-paper": 1.40}
BASELINES = ("deepspeed", "sorted", "packed", "packed-balanced", "skrull-paper")
SWEPT = (("skrull", "deepspeed"), ("skrull-paper", "deepspeed"), ("skrull", "packed"))
BATCH_SIZES = (8, 16, 32, 64, 128)
BUCKETS = {"Qwen2.5-0.5B": (13000, 17000, 26000, 39000, 52000), "Qwen2.5-7B": (6500, 9000, 13000, 20000, 26000)}


class Planner:
    """Calls the program. A setting: model, data set, replicas, context-parallel ranks, sequences per replica, bucket."""

    def __init__(self, skrull, batches, folder):
        self.skrull, self.batches, self.folder = skrull, batches, folder

    def compare(self, model, data_set, replicas, ranks, sequences, bucket=None):
        """policy -> its entry in the JSON of `skrull plan --compare all`."""
        self.configure(model, ranks, sequences * replicas, bucket or MODELS[model]["bucket_tokens"],
                       MODELS[model]["cutoff_len"])
        result = self.run(replicas * ranks, data_set, "--compare", "all", "--batches", str(self.batches))
        return {entry["policy"]: entry for entry in result["policies"]}

    def draw(self, model, policy, path):
        self.configure(model, 8, 48, 16000, 32768)
        self.run(8, "long-tail", "--policy", policy, "--timeline", str(path))

    def configure(self, model, ranks, batch, bucket, cutoff):
        shape = {key: value for key, value in MODELS[model].items() if key not in ("bucket_tokens", "cutoff_len")}
        (self.folder / "config.json").write_text(json.dumps(dict(
            shape, architectures=["Qwen2ForCausalLM"], model_type="qwen2", max_position_embeddings=131072,
            rms_norm_eps=1e-6, rope_theta=1e6, hidden_act="silu")))
        (self.folder / "plan.json").write_text(json.dumps({
            "model_name_or_path": str(self.folder), "context_parallel_size": ranks, "ranks_per_node": RANKS_PER_NODE,
            "bucket_tokens": bucket, "cutoff_len": cutoff, "global_batch_size": batch,
            "hardware_profile": "h100_4x8", "compute_dtype": "bfloat16", "seed": 0}))

    def run(self, ranks, data_set, *arguments):
        command = [self.skrull, "plan", str(self.folder / "plan.json"), "--ranks", str(ranks),
                   "--draw", data_set, "--json", *arguments]
        result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return json.loads(result.stdout.splitlines()[-1])


def speedup(policies, policy, over):
    return policies[over]["schedule_seconds"] / policies[policy]["schedule_seconds"]


def setting_of(model, data_set):
    """Replicas, context-parallel ranks, sequences per replica in the paper."""
    return (2, 16, 40) if (model, data_set) == ("Qwen2.5-7B", "chatqa2") else (4, 8, 64)


def run_main(planner):
    return {(model, data_set): planner.compare(model, data_set, *setting_of(model, data_set))
            for model in MODELS for data_set in DATA_SETS}


def main_table(results):
    lines = ["| model | data set | DP x CP | " + " | ".join("over " + b for b in BASELINES)
             + " | skrull-paper over deepspeed | the paper says | gap to the bound | planning, ms |",
             "| --- | --- | --- |" + " ---: |" * (len(BASELINES) + 4)]
    for (model, data_set), policies in results.items():
        replicas, ranks, _ = setting_of(model, data_set)
        ours = policies["skrull"]
        cells = [model, DATA_SETS[data_set], f"{replicas} x {ranks}"]
        cells += [f"{speedup(policies, 'skrull', baseline):.2f}" for baseline in BASELINES]
        cells += [f"{speedup(policies, 'skrull-paper', 'deepspeed'):.2f}", f"{PAPER_SPEEDUPS[model, data_set]:.2f}",
                  f"{100 * ours['gap']:.1f}%", f"{1e3 * ours['scheduling_seconds']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ablation_table(policies):
    lines = ["| policy | over deepspeed | the paper says | micro-batches | distributed | most memory of a rank | gap |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name in ("deepspeed", "round-robin", "skrull-paper", "packed", "skrull"):
        entry = policies[name]
        paper = f"{PAPER_ABLATION[name]:.2f}" if name in PAPER_ABLATION else ""
        lines.append(f"| {name} | {speedup(policies, name, 'deepspeed'):.2f} | {paper} | {entry['micro_batches']:.1f} | "
                     f"{100 * entry['distributed_share']:.0f}% | {entry['peak_memory_bytes'] / 1e9:.1f} GB | "
                     f"{100 * entry['gap']:.1f}% |")
    return "\n".join(lines)


def run_sweeps(planner):
    """"batch": the 0.5B model on 4 x 8 ranks; "bucket": ChatQA2, the one data set whose batches need more than one
    micro-batch. Each {name of a line: {x: policies}}."""
    batch = {DATA_SETS[d]: {n: planner.compare("Qwen2.5-0.5B", d, 4, 8, n) for n in BATCH_SIZES} for d in DATA_SETS}
    bucket = {model: {c: planner.compare(model, "chatqa2", *setting_of(model, "chatqa2"), c) for c in sizes}
              for model, sizes in BUCKETS.items()}
    return batch, bucket


def batch_table(sweep):
    lines = ["| sequences per replica | | " + " | ".join(str(n) for n in BATCH_SIZES) + " |",
             "| --- | --- |" + " ---: |" * len(BATCH_SIZES)]
    for name, by_size in sweep.items():
        for policy, baseline in SWEPT:
            cells = [f"{speedup(by_size[n], policy, baseline):.2f}" for n in BATCH_SIZES]
            lines.append(f"| {name} | {policy} over {baseline} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bucket_table(sweep):
    """Step time beside the same policy's at the paper's bucket."""
    lines = ["| | speed beside itself at the paper's bucket | C / 2 | 2/3 C | C | 3/2 C | 2 C |",
             "| --- | --- |" + " ---: |" * 5]
    for model, by_bucket in sweep.items():
        usual = by_bucket[MODELS[model]["bucket_tokens"]]
        for policy in ("deepspeed", "packed", "skrull-paper", "skrull"):
            cells = [f"{usual[policy]['schedule_seconds'] / by[policy]['schedule_seconds']:.2f}"
                     for by in by_bucket.values()]
            lines.append(f"| {model}, C = {MODELS[model]['bucket_tokens']:,} | {policy} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


class Svg:
    """A drawing in black, white and greys."""

    def __init__(self, width, height):
        self.size = (width, height)
        self.parts = [
            '<defs><pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff"/>'
            '<rect width="2.2" height="6" fill="#555"/></pattern></defs>',
            f'<rect width="{width}" height="{height}" fill="#fff"/>']

    def rect(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
                          'stroke="#222" stroke-width="0.8"/>')

    def line(self, points, width=1.0, colour="#222", dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
                          f'stroke-dasharray="{dash}"/>')

    def text(self, x, y, text, size=12, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'font-weight="{weight}" fill="#222">{text}</text>')

    def marker(self, x, y, kind):
        shapes = {"circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#fff" stroke="#222" stroke-width="1.4"/>',
                  "square": f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" fill="#222"/>',
                  "triangle": f'<polygon points="{x:.1f},{y - 4.6:.1f} {x + 4.4:.1f},{y + 3.4:.1f} '
                              f'{x - 4.4:.1f},{y + 3.4:.1f}" fill="#999" stroke="#222"/>'}
        self.parts.append(shapes[kind])

    def save(self, path):
        width, height = self.size
        path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">\n'
                        + "\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")


def draw_speedups(results, path):
    """Bars: every policy's speed over packed, a group for each model and data set."""
    bars = {"deepspeed": "#fff", "sorted": "#ddd", "skrull-paper": "url(#stripes)", "packed": "#aaa",
            "packed-balanced": "#777", "skrull": "#111"}
    svg = Svg(1010, 360)
    left, top, bottom, group, bar = 52, 62, 300, 158, 21
    most = max(speedup(policies, "skrull", "packed") for policies in results.values()) * 1.12
    height = (bottom - top) / most
    svg.text(left, 22, "Predicted speed relative to the policy “packed” (longer is faster)", 15, weight="bold")
    x = left
    for name, fill in bars.items():
        svg.rect(x, 34, 14, 12, fill)
        svg.text(x + 20, 44.5, name)
        x += 50 + 7 * len(name)
    for tick in (0.0, 0.5, 1.0, 1.5):
        if tick < most:
            svg.line([(left, bottom - tick * height), (left + 6 * group, bottom - tick * height)], 0.6, "#bbb")
            svg.text(left - 6, bottom - tick * height + 4, f"{tick:.1f}", 11, "end")
    for index, ((model, data_set), policies) in enumerate(results.items()):
        x = left + index * group + 14
        for number, (name, fill) in enumerate(bars.items()):
            value = speedup(policies, name, "packed")
            svg.rect(x + number * bar, bottom - value * height, bar - 2, value * height, fill)
            label = f"{value:.2f}" if value >= 0.995 else f"{value:.2f}"[1:]
            svg.text(x + number * bar + bar / 2 - 1, bottom - value * height - 4, label, 8.5, "middle")
        svg.text(x + 3 * bar, bottom + 17, DATA_SETS[data_set], 12, "middle")
        svg.text(x + 3 * bar, bottom + 33, model, 11, "middle")
    svg.line([(left, bottom), (left + 6 * group, bottom)], 1.2)
    svg.save(path)


def draw_panel(svg, left, title, axis, lines):
    """One panel of speed-ups: `lines` is {name: ([labels of x], [values], marker)}."""
    top, bottom, width = 70, 260, 330
    most = max(max(values) for _, values, _ in lines.values()) * 1.05
    least = min(1.0, min(min(values) for _, values, _ in lines.values()) * 0.97)

    def height_of(value):
        return bottom - (value - least) / (most - least) * (bottom - top)

    svg.text(left, 52, title, 13, weight="bold")
    every = next(step for step in (5, 10, 20, 50) if (most - least) * 100 / step < 7)
    for percent in range(0, int(100 * most) + 1, every):
        if percent >= 100 * least:
            svg.line([(left, height_of(percent / 100)), (left + width, height_of(percent / 100))], 0.6, "#bbb")
            svg.text(left - 6, height_of(percent / 100) + 4, f"{percent / 100:.2f}", 11, "end")
    legend = left
    for name, (labels, values, marker) in lines.items():
        step = width / (len(labels) - 1)
        points = [(left + index * step, height_of(value)) for index, value in enumerate(values)]
        svg.line(points, 1.4)
        for index, (x, y) in enumerate(points):
            svg.marker(x, y, marker)
        svg.marker(legend + 5, bottom + 58, marker)
        svg.text(legend + 15, bottom + 62, name, 11.5)
        legend += 30 + 6.5 * len(name)
    for index, label in enumerate(labels):
        svg.text(left + index * step, bottom + 18, label, 11, "middle")
    svg.text(left + width / 2, bottom + 37, axis, 12, "middle")
    svg.line([(left, bottom), (left + width, bottom)], 1.2)


def draw_sweeps(batch, bucket, path):
    svg = Svg(860, 340)
    svg.text(50, 24, "Predicted speed, Qwen2.5-0.5B on 4 x 8 ranks", 15, weight="bold")
    markers = ("circle", "square", "triangle")
    draw_panel(svg, 50, "Larger batches: skrull beside packed", "sequences per replica", {
        name: ([str(n) for n in by_size], [speedup(by, "skrull", "packed") for by in by_size.values()], marker)
        for (name, by_size), marker in zip(batch.items(), markers)})
    by_bucket = bucket["Qwen2.5-0.5B"]
    usual = by_bucket[MODELS["Qwen2.5-0.5B"]["bucket_tokens"]]
    draw_panel(svg, 490, "Larger buckets, ChatQA2: beside itself at 26,000", "bucket_tokens", {
        policy: ([f"{c:,}" for c in by_bucket],
                 [usual[policy]["schedule_seconds"] / by[policy]["schedule_seconds"] for by in by_bucket.values()], marker)
        for policy, marker in zip(("packed", "skrull-paper", "skrull"), markers)})
    svg.save(path)


def draw_timelines(planner, images):
    """One replica of 8 ranks, 48 sequences: what three policies make of them."""
    for policy in ("packed", "skrull-paper", "skrull"):
        planner.draw("Qwen2.5-0.5B", policy, images / f"timeline-{policy}.svg")


def fill_marks(document, tables):
    text = document.read_text(encoding="utf-8")
    for name, table in tables.items():
        text, count = re.subn(rf"(<!-- table: {name} -->\n).*?(\n<!-- end -->)",
                              lambda match: match.group(1) + table + match.group(2), text, flags=re.S)
        if count != 1:
            sys.exit(f"{document}: expected one place marked <!-- table: {name} -->, found {count}")
    document.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skrull", default="build/skrull")
    parser.add_argument("--docs", type=pathlib.Path, default=pathlib.Path("docs"))
    parser.add_argument("--batches", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(arguments.skrull, arguments.batches, pathlib.Path(folder))
        results = run_main(planner)
        ablation = planner.compare("Qwen2.5-0.5B", "chatqa2", 1, 8, 64)
        batch, bucket = run_sweeps(planner)
        images = arguments.docs / "images"
        images.mkdir(exist_ok=True)
        draw_timelines(planner, images)
    tables = {"speed-ups": main_table(results), "one replica": ablation_table(ablation),
              "batch size": batch_table(batch), "bucket size": bucket_table(bucket)}
    draw_speedups(results, images / "speedups.svg")
    draw_sweeps(batch, bucket, images / "sweeps.svg")
    fill_marks(arguments.docs / "scheduling.md", tables)
    for name, table in tables.items():
        print(f"## {name}\n\n{table}\n")


if __name__ == "__main__":
    main()
