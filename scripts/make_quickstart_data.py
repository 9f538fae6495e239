#!/usr/bin/env python3
"""Makes the quickstart's data, tokenizer and model config in configs/quickstart (all of it invented here, Apache-2.0).

The task: a text introduces guests by full name, each once, between other sentences; then someone asks for the full name
that belongs to a first name. The answer stands in the context only, so a model that has not learned to look things up
guesses one surname of 160. Texts have 4 to 150 guests: most are short, a few are long.

Needs: pip install tokenizers. Not needed to run the quickstart: the files are in the repository.
"""
import json
import random
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "configs" / "quickstart"

SYLLABLES_FIRST = "ba be bi da di do fa fe ga ge ha ka ke ki la le li lo ma me mi mo na ne ni no pa pe ra re ri ro sa se si ta te ti va ve".split()
ENDS_FIRST = ["ra", "na", "lo", "mir", "ten", "vis"]
SYLLABLES_LAST = "bran crel dorn fel grun hald jor kest lund marn nort orl prav quil rost stav torn ulm vant wer".split()
ENDS_LAST = ["berg", "dal", "feld", "holm", "mann", "ow", "sen", "ström"]
PLACES = "the garden,the kitchen,the library,the hall,the terrace,the cellar,the tower,the yard".split(",")
THINGS = "violin,flute,chess,cards,drums,piano,tennis,darts,guitar,harp".split(",")
DOINGS = ["{n} is in {p}.", "In {p} sits {n}.", "{n} plays {t}.", "We met {n} in {p}.", "Today {n} plays {t} in {p}.",
          "Next comes {n}.", "{n} came early.", "{n} came late and went to {p}."]
FILLERS = ["It rains.", "The lamps are lit.", "Someone laughs in {p}.", "They play {t} in {p}.", "Dinner is served in {p}.",
           "A dog sleeps in {p}.", "Music comes from {p}."]
SYSTEM = "You are a helpful assistant."  # what Skrull renders for a folder without a chat template


def names(rng, syllables, ends, count):
    made = set()
    while len(made) < count:
        made.add((rng.choice(syllables) + rng.choice(ends)).capitalize())
    return sorted(made)


def fill(rng, template, name=""):
    return template.format(n=name, p=rng.choice(PLACES), t=rng.choice(THINGS))


def text_and_guests(rng, first, last, guests):
    chosen = [(f, rng.choice(last)) for f in rng.sample(first, guests)]
    sentences = [fill(rng, rng.choice(DOINGS), f"{f} {l}") for f, l in chosen]
    for _ in range(guests // 4):
        sentences.insert(rng.randrange(len(sentences) + 1), fill(rng, rng.choice(FILLERS)))
    return " ".join(sentences), chosen


def conversation(rng, first, last, guests, questions):
    text, chosen = text_and_guests(rng, first, last, guests)
    messages = []
    for k, (f, l) in enumerate(rng.sample(chosen, min(questions, guests))):
        question = f"Who is {f}?"
        messages.append({"role": "user", "content": question if k else f"{text}\n\n{question}"})
        messages.append({"role": "assistant", "content": f"It is {f} {l}."})
    return {"messages": messages}


def guest_count(rng):
    kind = rng.random()
    if kind < 0.70:
        return rng.randint(4, 12)
    if kind < 0.95:
        return rng.randint(13, 40)
    return rng.randint(60, 150)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def make_tokenizer(texts):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1021, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def main():
    rng = random.Random(20250601)
    first = names(rng, SYLLABLES_FIRST, ENDS_FIRST, 160)
    last = names(rng, SYLLABLES_LAST, ENDS_LAST, 160)
    train = [conversation(rng, first, last, guest_count(rng), 8) for _ in range(3600)]
    held_out = [conversation(rng, first, last, guest_count(rng), 8) for _ in range(100)]
    questions = [conversation(rng, first, last, guest_count(rng), 1) for _ in range(100)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_rows(FOLDER / "train.jsonl", train)
    write_rows(FOLDER / "held_out.jsonl", held_out)
    write_rows(FOLDER / "questions.jsonl", questions)

    model = FOLDER / "model"
    model.mkdir(exist_ok=True)
    every_name = [f" {name}" for name in first + last] * 200
    texts = [m["content"] for row in train for m in row["messages"]] + every_name + [f"system\n{SYSTEM}", "user\n", "assistant\n"] * 50
    tokenizer = make_tokenizer(texts)
    tokenizer.save(str(model / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab_size()
    end, start, stop = (tokenizer.token_to_id(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "attention_dropout": 0.0,
        "vocab_size": vocabulary, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "initializer_range": 0.02, "use_sliding_window": False,
        "bos_token_id": end, "eos_token_id": stop, "torch_dtype": "float32"}
    (model / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    added = {str(i): {"content": t, "special": True, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
             for i, t in ((end, "<|endoftext|>"), (start, "<|im_start|>"), (stop, "<|im_end|>"))}
    (model / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added, "bos_token": None,
        "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>",
        "errors": "replace", "model_max_length": 4096, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}, indent=2) + "\n")
    lengths = [len(tokenizer.encode("".join(m["content"] for m in row["messages"])).ids) for row in train]
    whole = sum(len(tokenizer.encode(" " + name).ids) == 1 for name in first + last)
    print(f"{len(train)} rows, {sum(lengths)} tokens, {min(lengths)} to {max(lengths)}; vocabulary {vocabulary}; "
          f"{whole} of {len(first + last)} names are one token")


if __name__ == "__main__":
    main()
