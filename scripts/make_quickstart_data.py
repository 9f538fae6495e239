#!/usr/bin/env python3
"""Makes the quickstart's data, tokenizer and model config in configs/quickstart (all of it invented here, Apache-2.0).

The task: a text mentions one animal, one fruit, one tool and so on among other sentences; then someone asks which animal,
which fruit, ... it was. The answer stands in the context only: who has not learned to read guesses one word of 20. Most
texts are short, a few have more than a thousand tokens.

Needs: pip install tokenizers. Not needed to run the quickstart: the files are in the repository.
"""
import json
import random
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "configs" / "quickstart"

KINDS = {
    "animal": "fox owl bear otter heron badger lynx mole crow hare toad swan wolf deer goat crab seal moose stork newt",
    "fruit": "apple pear plum fig cherry lemon mango melon peach grape quince lime date papaya guava kiwi olive orange berry apricot",
    "tool": "hammer saw rake spade drill chisel wrench axe plane file clamp shovel sickle anvil ladder pliers trowel mallet lathe vise",
    "instrument": "violin flute drum piano harp cello horn guitar oboe lute organ banjo tuba viola zither trumpet gong bell fiddle clarinet",
    "colour": "red blue green yellow purple brown pink grey white black violet amber crimson teal ivory scarlet indigo beige gold silver",
    "garment": "coat scarf hat glove shirt boot sock belt vest cloak cap apron jacket shoe robe skirt tunic sweater shawl mitten",
    "vehicle": "cart sled canoe tram wagon barge bicycle truck ferry carriage raft train glider tractor kayak coach van scooter yacht balloon",
    "metal": "iron copper tin zinc lead nickel brass bronze steel cobalt chrome titanium platinum tungsten mercury lithium sodium barium cadmium uranium",
}
CLUES = ["There was something about {w}.", "Somebody spoke of {w} at length.", "We also heard the word {w} there.",
         "On the wall was written {w}.", "A child drew {w} on paper.", "Later the talk turned to {w}."]
PEOPLE = "Anna Ben Carla David Emma Felix Greta Hugo Ida Jonas Klara Leo Mia Noah Olga Paul".split()
PLACES = "kitchen garden cellar attic library market harbour station tower square bridge mill".split()
DEEDS = ["{a} met {b} in the {p}.", "{a} waited for {b} near the {p}.", "It was quiet in the {p}.", "{a} went to the {p}.",
         "Then {a} and {b} left the {p}.", "Nobody was in the {p}.", "{a} wrote a long letter to {b}.", "It rained all day."]
SYSTEM = "You are a helpful assistant."  # what Skrull renders for a folder without a chat template


def other_sentence(rng):
    a, b = rng.sample(PEOPLE, 2)
    return rng.choice(DEEDS).format(a=a, b=b, p=rng.choice(PLACES))


def text_size(rng):
    """Kinds of words and other sentences in a text: many short texts, a few long ones."""
    draw = rng.random()
    if draw < 0.75:
        return rng.randint(2, 6), rng.randint(1, 8)
    if draw < 0.95:
        return rng.randint(4, 8), rng.randint(8, 40)
    return 8, rng.randint(80, 200)


def conversation(rng, most_turns):
    kinds, others = text_size(rng)
    words = {kind: rng.choice(KINDS[kind].split()) for kind in rng.sample(sorted(KINDS), kinds)}
    sentences = [rng.choice(CLUES).format(w=word) for word in words.values()] + [other_sentence(rng) for _ in range(others)]
    rng.shuffle(sentences)
    messages = []
    for kind in rng.sample(sorted(words), min(most_turns, kinds)):
        question = f"Which {kind} was it?"
        messages.append({"role": "user", "content": question if messages else " ".join(sentences) + "\n\n" + question})
        messages.append({"role": "assistant", "content": f"It was {words[kind]}."})
    return {"messages": messages}


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
    train = [conversation(rng, 8) for _ in range(4000)]
    held_out = [conversation(rng, 8) for _ in range(100)]
    questions = [conversation(rng, 1) for _ in range(100)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_rows(FOLDER / "train.jsonl", train)
    write_rows(FOLDER / "held_out.jsonl", held_out)
    write_rows(FOLDER / "questions.jsonl", questions)

    model = FOLDER / "model"
    model.mkdir(exist_ok=True)
    words = [f" {word}" for kind in KINDS.values() for word in kind.split()]
    texts = [m["content"] for row in train for m in row["messages"]] + words * 50
    tokenizer = make_tokenizer(texts + [f"system\n{SYSTEM}", "user\n", "assistant\n"] * 50)
    tokenizer.save(str(model / "tokenizer.json"))
    end, start, stop = (tokenizer.token_to_id(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "attention_dropout": 0.0,
        "vocab_size": tokenizer.get_vocab_size(), "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "initializer_range": 0.06, "use_sliding_window": False,
        "bos_token_id": end, "eos_token_id": stop, "torch_dtype": "float32"}
    (model / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    added = {str(i): {"content": t, "special": True, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
             for i, t in ((end, "<|endoftext|>"), (start, "<|im_start|>"), (stop, "<|im_end|>"))}
    (model / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added, "bos_token": None,
        "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 4096,
        "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None}, indent=2) + "\n")
    lengths = [len(tokenizer.encode("".join(m["content"] for m in row["messages"])).ids) for row in train]
    whole = sum(len(tokenizer.encode(word).ids) == 1 for word in words)
    print(f"{len(train)} rows, {sum(lengths)} tokens, {min(lengths)} to {max(lengths)}; vocabulary "
          f"{tokenizer.get_vocab_size()}; {whole} of {len(words)} words are one token")


if __name__ == "__main__":
    main()
