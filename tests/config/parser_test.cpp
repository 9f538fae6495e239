#include <climits>

#include "config_test_support.h"
#include "skrull/config/config_docs.h"

using namespace skrull;
using namespace skrull::test;
using Strings = std::vector<std::string>;
using Paths = std::vector<std::filesystem::path>;

TEST_CASE("every kind of value is read from JSON") {
  const TrainConfig config = parse_text(R"({
    "$schema": "skrull.schema.json",
    "model_name_or_path": "models/Qwen2.5-0.5B", "init": "random", "dataset": ["a.jsonl", "b.jsonl"],
    "val_size": 0.05, "cutoff_len": 131072, "overlength": "truncate", "num_train_epochs": 2, "max_steps": 2e3,
    "learning_rate": 2e-5, "lr_scheduler_type": "wsd", "compute_dtype": "bfloat16", "gradient_checkpointing": true,
    "scheduler": {"policy": "packed"}, "overwrite_output_dir": true, "bucket_tokens": 8192, "save_dtype": "float32",
    "global_batch_size": 64, "data_order": "sorted_batches", "device": "cpu"})");
  TrainConfig expected;
  expected.model_name_or_path = "models/Qwen2.5-0.5B";
  expected.init = Initialization::random;
  expected.dataset = {"a.jsonl", "b.jsonl"};
  expected.val_size.fraction = 0.05;
  expected.cutoff_len = 131072;
  expected.overlength = OverlengthPolicy::truncate;
  expected.num_train_epochs = 2.0;
  expected.max_steps = 2000;
  expected.learning_rate = 2e-5;
  expected.lr_scheduler_type = LearningRateSchedule::wsd;
  expected.compute_dtype = DType::bfloat16;
  expected.gradient_checkpointing = GradientCheckpointing::full;
  expected.overwrite_output_dir = true;
  expected.scheduler.policy = SchedulingPolicy::packed;
  expected.bucket_tokens = 8192;
  expected.save_dtype = DType::float32;
  expected.global_batch_size = 64;
  expected.data_order = DataOrder::sorted_batches;
  expected.device = DeviceChoice::cpu;
  CHECK(config == expected);
}

TEST_CASE("the defaults are those of Hugging Face tools") {
  const TrainConfig config = parse_config({.file = {}, .overrides = with_required(), .problems = {}});
  CHECK(config.cutoff_len == 32768);
  CHECK(config.num_train_epochs == 3.0);
  CHECK(config.max_steps == -1);
  CHECK(config.learning_rate == 1e-5);
  CHECK(config.lr_scheduler_type == LearningRateSchedule::cosine);
  CHECK(config.adam_beta1 == 0.9);
  CHECK(config.adam_beta2 == 0.999);
  CHECK(config.adam_epsilon == 1e-8);
  CHECK(config.max_grad_norm == 1.0);
  CHECK(config.seed == 42);
  CHECK(resolve_global_batch_size(config, 3) == 16);
  CHECK(tokenizer_folder(config) == "models/a");
}

TEST_CASE("a path list is one path, a JSON list or null") {
  CHECK(parse_text(R"({"dataset": "a.jsonl"})").dataset == Paths{"a.jsonl"});
  CHECK(parse_text(R"({"eval_dataset": null})").eval_dataset.empty());
  CHECK(parse_text(R"({"eval_dataset": []})").eval_dataset.empty());
  CHECK(problem_in(R"({"dataset": ["a.jsonl", 3]})") ==
        "config.json: dataset[1]: expected a path (a string), got the number 3");
  CHECK(problem_in(R"({"dataset": {}})") == "config.json: dataset: expected a path or a list of paths, got an object");
  CHECK(problem_in(R"({"dataset": ""})") == "config.json: dataset: the path is empty");
}

TEST_CASE("a path is valid UTF-8 without zero bytes, as the echo has to hold it") {
  check_contains(problem_in("{}", {{"output_dir", "a\xFF"}}), "command line: output_dir: the path is not valid UTF-8");
  check_contains(problem_in(R"({"output_dir": "a\u0000"})"), "config.json: output_dir: the path holds a zero byte");
}

TEST_CASE("overrides are read by the option's type, the last one wins, all win over the file") {
  const auto config = parse_text(R"({"seed": 1, "learning_rate": 1e-4, "dataset": "file.jsonl", "bucket_tokens": 7})",
                                 {{"seed", "2"},
                                  {"seed", "3"},
                                  {"dataset", "a.jsonl,b.jsonl"},
                                  {"eval_dataset", R"(["c,d.jsonl"])"},
                                  {"warmup_ratio", ".1"},
                                  {"max_steps", "-1"},
                                  {"overwrite_output_dir", "True"},
                                  {"gradient_checkpointing", "true"},
                                  {"bucket_tokens", "auto"},
                                  {"global_batch_size", "null"},
                                  {"output_dir", "123"},
                                  {"max_length", "99"},
                                  {"scheduler.policy", "packed"}});
  CHECK(config.seed == 3);
  CHECK(config.learning_rate == 1e-4);
  CHECK(config.dataset == Paths{"a.jsonl", "b.jsonl"});
  CHECK(config.eval_dataset == Paths{"c,d.jsonl"});
  CHECK(config.warmup_ratio == 0.1);
  CHECK(config.max_steps == -1);
  CHECK(config.overwrite_output_dir);
  CHECK(config.gradient_checkpointing == GradientCheckpointing::full);
  CHECK(!config.bucket_tokens);
  CHECK(!config.global_batch_size);
  CHECK(config.output_dir == "123");
  CHECK(config.cutoff_len == 99);
}

TEST_CASE("val_size is a fraction or a number of rows") {
  CHECK(parse_text(R"({"val_size": 0})").val_size.empty());
  CHECK(parse_text(R"({"val_size": 0.0})").val_size.empty());
  CHECK(parse_text(R"({"val_size": 0.25})").val_size == ValidationSize{.fraction = 0.25});
  CHECK(parse_text(R"({"val_size": 1})").val_size == ValidationSize{.rows = 1});
  CHECK(parse_text("{}", {{"val_size", "500"}}).val_size == ValidationSize{.rows = 500});
  for (const char* wrong : {"1.0", "1.5", "-1", "-0.1", "\"all\"", "null"}) {
    check_contains(problem_in(std::string(R"({"val_size": )") + wrong + "}"), "config.json: val_size: ");
  }
}

TEST_CASE("all problems are reported at once, each with its place") {
  const auto lines = problems_in(
      R"({"learning_rte": 1e-5, "cutoff_len": "long", "adam_beta1": 1, "scheduler": {"polcy": "packed"}, "dataset": "a.jsonl",
          "lr_scheduler_type": "cosin", "overwrite_output_dir": "yes", "eval_steps": 100})",
      {{"max_steps", "0"}, {"lr", "1"}}, required_for_training());
  CHECK(
      lines ==
      Strings{
          "the configuration has 11 problems:",
          "config.json: learning_rte: unknown key; did you mean learning_rate?",
          R"(config.json: cutoff_len: expected an integer, got the string "long")",
          "config.json: adam_beta1: must be at least 0 and less than 1, got 1",
          "config.json: scheduler.polcy: unknown key; did you mean scheduler.policy?",
          "config.json: lr_scheduler_type: must be one of constant, constant_with_warmup, linear, cosine, "
          "cosine_with_min_lr, "
          R"(wsd, got the string "cosin"; did you mean cosine?)",
          R"(config.json: overwrite_output_dir: expected true or false, got the string "yes")",
          "command line: max_steps: must be at least 1, or -1, got 0",
          "command line: lr: unknown key; the option for this is learning_rate",
          "config.json: model_name_or_path: is required but missing; set it in the file or as model_name_or_path=VALUE",
          "config.json: output_dir: is required but missing; set it in the file or as output_dir=VALUE",
          "config.json: eval_steps: is 100 but there is nothing to evaluate on; give eval_dataset or val_size",
      });
}

TEST_CASE("numbers out of range or of the wrong kind are refused") {
  const auto wrong = [](const std::string& key, const std::string& json) {
    return problem_in("{\"" + key + "\": " + json + "}").substr(std::string("config.json: ").size());
  };
  CHECK(wrong("cutoff_len", "1") == "cutoff_len: must be at least 2, got 1");
  CHECK(wrong("cutoff_len", "2.5") == "cutoff_len: expected a whole number of at most 64 bits, got the number 2.5");
  CHECK(wrong("seed", "18446744073709551615") ==
        "seed: expected a whole number of at most 64 bits, got the number 18446744073709551615");
  CHECK(wrong("seed", "1e300") == "seed: expected a whole number of at most 64 bits, got the number 1e+300");
  CHECK(wrong("seed", "null") == "seed: expected an integer, got null");
  CHECK(wrong("seed", "true") == "seed: expected an integer, got the boolean true");
  CHECK(wrong("seed", "[1]") == "seed: expected an integer, got a list");
  CHECK(wrong("learning_rate", "-1e-5") == "learning_rate: must be at least 0, got -1e-05");
  CHECK(wrong("num_train_epochs", "0") == "num_train_epochs: must be greater than 0, got 0");
  CHECK(wrong("lr_decay_ratio", "0") == "lr_decay_ratio: must be greater than 0 and at most 1, got 0");
  CHECK(wrong("bucket_tokens", "\"many\"") ==
        R"(bucket_tokens: expected an integer, got the string "many" (auto is allowed too))");
  CHECK(wrong("global_batch_size", "0") == "global_batch_size: must be at least 1, got 0 (null is allowed too)");
  CHECK(wrong("bucket_tokens", "null") == "bucket_tokens: expected an integer, got null (auto is allowed too)");
  CHECK(wrong("scheduler", "\"packed\"") == "scheduler: expected an object of options, got the string \"packed\"");
  CHECK(parse_text(R"({"seed": 9223372036854775807})").seed == INT64_MAX);
  for (const char* text : {"nan", "inf", "1e999", "1x", "", "0x10"}) {
    check_contains(problem_in("{}", {{"learning_rate", text}}), "command line: learning_rate: expected a number, got");
  }
}

TEST_CASE("unknown keys are answered with the nearest key, the same option elsewhere, or nothing") {
  CHECK(problem_in(R"({"max_lenght": 5})") == "config.json: max_lenght: unknown key; did you mean max_length?");
  CHECK(problem_in(R"({"bf16": true})") == "config.json: bf16: unknown key; the option for this is compute_dtype");
  CHECK(problem_in(R"({"policy": "packed"})") ==
        "config.json: policy: unknown key; the option for this is scheduler.policy");
  CHECK(problem_in(R"({"zzzzzzzzzzzz": {"a": 1}})") == "config.json: zzzzzzzzzzzz: unknown key");
  check_contains(problem_in(R"({"scheduler.policy": "packed"})"), "nested objects");
}

TEST_CASE("a key given twice is refused, also under two names") {
  CHECK(problem_in(R"({"seed": 1, "scheduler": {"policy": "packed", "policy": "packed"}})") ==
        "config.json: scheduler.policy: the key stands in the file twice");
  CHECK(problem_in(R"({"cutoff_len": 10, "max_length": 10})") ==
        "config.json: max_length: the file gives cutoff_len twice, under two of its names");
}

TEST_CASE("a file that is no config is one problem beside those of the command line") {
  CHECK(problems_in("{\n\"seed\": 1,\n}", {{"sede", "1"}}, required_for_training()).size() == 3);
  check_contains(problem_in("{\n\"seed\": 1,\n}"), "config.json: line 3, column 1");
  CHECK(problem_in("[1]") == "config.json: expected a JSON object of options, got a list");
  check_contains(
      problems_of([] { parse_config({.file = "no/such/config.json", .overrides = {}, .problems = {}}); }).front(),
      "config.json");
  CHECK(parse_text("\xEF\xBB\xBF{\"seed\": 5}\r\n").seed == 5);
}

TEST_CASE("contradictions") {
  const auto contradiction = [](const std::string& json) { return problem_in(json); };
  check_contains(contradiction(R"({"val_size": 0.1, "eval_dataset": "e.jsonl"})"),
                 "val_size: contradicts eval_dataset");
  check_contains(contradiction(R"({"lr_scheduler_type": "constant", "warmup_steps": 5})"), "constant_with_warmup");
  check_contains(contradiction(R"({"lr_scheduler_type": "constant", "warmup_ratio": 0.1})"), "constant_with_warmup");
  check_contains(contradiction(R"({"min_lr_ratio": 0.2})"),
                 "min_lr_ratio: has no effect with lr_scheduler_type cosine");
  check_contains(contradiction(R"({"lr_decay_ratio": 0.2, "lr_scheduler_type": "linear"})"), "choose wsd");
  check_contains(contradiction(R"({"gradient_accumulation_steps": 4})"), "without per_device_train_batch_size");
  check_contains(
      contradiction(R"({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "global_batch_size": 16})"),
      "2 x gradient_accumulation_steps 3 = 6 sequences per rank contradicts global_batch_size 16");
  check_contains(
      contradiction(R"({"per_device_train_batch_size": 4000000000, "gradient_accumulation_steps": 4000000000})"),
      "64 bits");
  check_contains(contradiction(R"({"model_name_or_path": "m/a", "output_dir": "m/./a/"})"), "choose another folder");

  CHECK_NOTHROW(parse_text(R"({"val_size": 0.1, "eval_steps": 5})"));
  CHECK_NOTHROW(parse_text(R"({"lr_scheduler_type": "constant", "warmup_ratio": 0})"));
  CHECK_NOTHROW(parse_text(R"({"lr_scheduler_type": "constant"})"));
  CHECK_NOTHROW(parse_text(R"({"min_lr_ratio": 0.2, "lr_scheduler_type": "wsd", "lr_decay_ratio": 0.3})"));
  CHECK_NOTHROW(parse_text(R"({"warmup_ratio": 0.1, "warmup_steps": 10})"));
}

TEST_CASE("a contradiction is not reported on top of a wrong value it depends on") {
  CHECK(problems_in(R"({"lr_scheduler_type": "wsdd", "min_lr_ratio": 0.2})").size() == 1);
}

TEST_CASE("the global batch size is resolved with the number of ranks") {
  const auto config = parse_text(R"({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3})");
  CHECK(resolve_global_batch_size(config, 1) == 6);
  CHECK(resolve_global_batch_size(config, 4) == 24);
  CHECK(resolve_global_batch_size(parse_text(R"({"per_device_train_batch_size": 5})"), 2) == 10);
  CHECK(resolve_global_batch_size(parse_text(R"({"global_batch_size": 7})"), 4) == 7);
  const auto both =
      parse_text(R"({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "global_batch_size": 8})");
  CHECK(resolve_global_batch_size(both, 2) == 8);
  check_contains(problems_of([&] { resolve_global_batch_size(both, 4); }).front(),
                 "2 x gradient_accumulation_steps 2 x 4 data-parallel ranks = 16 sequences per step contradicts "
                 "global_batch_size 8");
  const auto huge = parse_text(R"({"per_device_train_batch_size": 4611686018427387904})");
  CHECK_THROWS_AS(resolve_global_batch_size(huge, 2), InvalidInput);
}

TEST_CASE("commands ask only for the options they need") {
  CHECK_NOTHROW(parse_text("{}", {}, {}));
  check_contains(problem_in(R"({"model_name_or_path": "m"})", {}, {"model_name_or_path", "dataset"}),
                 "dataset: is required");
  check_contains(problem_in(R"({"dataset": []})", {}, {"dataset"}), "dataset: is required");
  check_contains(problem_in(R"({"output_dir": null})", {}, {"output_dir"}), "output_dir: is required");
  check_contains(problem_in("{}", {}, {"global_batch_size"}), "global_batch_size: is required");
  CHECK_THROWS_AS(parse_text("{}", {}, {"no_such_option"}), RunFailure);
  CHECK(required_for_training() == Strings{"model_name_or_path", "dataset", "output_dir"});
}

TEST_CASE("the echo of a config gives the same config") {
  CHECK(parse_text(config_to_json(TrainConfig{})) == TrainConfig{});
  const auto config = parse_text(R"({
    "model_name_or_path": "m", "init": "random", "tokenizer_name_or_path": "t", "dataset": ["a,b", "ü \"x\""],
    "eval_dataset": "e", "cutoff_len": 77, "overlength": "error", "data_order": "sequential",
    "preprocessing_num_workers": 3, "global_batch_size": 12, "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 2, "bucket_tokens": 555, "context_parallel_size": 4, "ranks_per_node": 2, "hardware_profile": "h100_4x8",
    "scheduler": {"policy": "skrull-paper", "elastic_rings": false, "search_moves": 1000, "budget_ms": 2.5, "threads": 3,
    "cost_model": "paper"}, "num_train_epochs": 0.1,
    "max_steps": 9, "seed": 9007199254740993, "learning_rate": 3.3333333333333335e-7, "lr_scheduler_type": "wsd",
    "warmup_ratio": 0.07, "warmup_steps": 4, "min_lr_ratio": 0.3, "lr_decay_ratio": 0.6, "weight_decay": 0.01,
    "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-12, "max_grad_norm": 0, "loss_reduction": "sequence_mean",
    "max_skipped_steps": 8, "device": "cuda", "attention_engine": "native", "deterministic_attention": false, "compute_dtype": "bfloat16", "gradient_checkpointing": "full",
    "loss_chunk_tokens": 128, "cpu_binding": "keep", "output_dir": "o", "overwrite_output_dir": true,
    "logging_steps": 2, "eval_steps": 6, "save_steps": 7, "save_total_limit": 2, "save_dtype": "bfloat16"})");
  CHECK(parse_text(config_to_json(config), {}, required_for_training()) == config);
  const auto split = parse_text(R"({"val_size": 12, "save_dtype": "auto"})");
  CHECK(parse_text(config_to_json(split)) == split);
}

TEST_CASE("a warm-up of all max_steps is a contradiction") {
  CHECK(
      problem_in(R"({"warmup_steps": 10, "max_steps": 10})") ==
      "config.json: warmup_steps: is 10, which leaves nothing of the 10 steps of max_steps; give fewer warm-up steps");
  CHECK(parse_text(R"({"warmup_steps": 9, "max_steps": 10})").warmup_steps == 9);
}
