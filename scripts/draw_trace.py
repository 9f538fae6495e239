#!/usr/bin/env python3
"""Draws one layer's forward and backward of one micro-batch of a trace.json (trace: true) as an SVG: for every rank
its compute stream and below it its communication stream.

    scripts/draw_trace.py runs/first/trace.json docs/trace.svg --layer 1 --micro-batch 0
"""

import argparse
import html
import json

LEFT, WIDTH, BAR, STRIP, GAP, TOP = 70, 1080, 20, 12, 14, 64
# Prefix of a span's name -> fill, what it is.
STYLES = [
    ("layer", "#e8e8e8", "linear layers"),
    ("local attention", "#9ecae1", "local attention"),
    ("own shards", "#fdd0a2", "own shards"),
    ("ring attention", "#f28e2b", "attention to what hops brought"),
    ("wait", "#d62728", "waiting"),
    ("keys and values", "#31a354", "keys and values on their way"),
    ("gradients", "#756bb1", "their gradients on their way"),
    ("sum gradients", "#bcbddc", "gradients of the weights"),
]


def style(name):
    return next((fill for prefix, fill, _ in STYLES if name.startswith(prefix)), None)


def window(events, name):
    chosen = [e for e in events if e["name"].startswith(name)]
    return min(e["ts"] for e in chosen), max(e["ts"] + e["dur"] for e in chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("output")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--micro-batch", type=int, default=0)
    options = parser.parse_args()
    with open(options.trace, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
    step = min(e["args"]["step"] for e in events)
    events = [
        e
        for e in events
        if e["args"]["step"] == step
        and e["args"].get("micro_batch") == options.micro_batch
        and e["args"].get("layer") == options.layer
    ]
    windows = [("forward", *window(events, "layer forward")), ("backward", *window(events, "layer backward"))]
    scale = (WIDTH - 30) / sum(end - begin for _, begin, end in windows)
    ranks = sorted({e["pid"] for e in events})
    turn = {rank: window([e for e in events if e["pid"] == rank], "layer backward")[0] for rank in ranks}
    events.sort(key=lambda e: -e["dur"])  # what lies inside is drawn over what it lies in
    lane = BAR + STRIP + GAP
    height = TOP + lane * len(ranks) + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/>',
    ]
    x = LEFT
    for _, fill, text in STYLES[:-1]:
        out.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{fill}" stroke="#888" stroke-width="0.4"/>')
        out.append(f'<text x="{x + 16}" y="20">{text}</text>')
        x += 30 + 6.3 * len(text)
    left = LEFT
    for name, begin, end in windows:
        out.append(f'<text x="{left}" y="{TOP - 16}">{name}, {(end - begin) / 1e3:.1f} ms</text>')
        for e in events:
            fill = style(e["name"])
            first, last = max(e["ts"], begin), min(e["ts"] + e["dur"], end)
            if fill is None or last <= first or (e["ts"] >= turn[e["pid"]]) != (name == "backward"):
                continue
            sent = e["tid"] == 1
            y = TOP + lane * ranks.index(e["pid"]) + (BAR if sent else 0)
            text = html.escape(f'rank {e["pid"]}: {e["name"]}, {e["dur"] / 1e3:.2f} ms')
            out.append(
                f'<rect x="{left + (first - begin) * scale:.1f}" y="{y}" width="{max(0.5, (last - first) * scale):.1f}" '
                f'height="{STRIP if sent else BAR}" fill="{fill}" stroke="#666" stroke-width="0.3">'
                f"<title>{text}</title></rect>"
            )
        left += (end - begin) * scale + 30
    for index, rank in enumerate(ranks):
        out.append(f'<text x="8" y="{TOP + lane * index + 14}">rank {rank}</text>')
        out.append(f'<text x="8" y="{TOP + lane * index + BAR + 10}" font-size="10" fill="#555">sends</text>')
    out.append("</svg>")
    with open(options.output, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
