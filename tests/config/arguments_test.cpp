#include "config_test_support.h"

using namespace skrull;
using Overrides = std::vector<ConfigOverride>;
using Strings = std::vector<std::string>;

TEST_CASE("arguments are separated into the file and the overrides, in order") {
  const auto source =
      read_arguments({"a=1.json/x", "configs/a.json", "--seed", "3", "--cutoff_len=5", "max_steps=-1", "--max_steps",
                      "-1", "--learning-rate", "1e-5", "dataset=a=b.jsonl", "output_dir="});
  CHECK(source.file == std::filesystem::path("configs/a.json"));
  CHECK(source.overrides == Overrides{{"a", "1.json/x"},
                                      {"seed", "3"},
                                      {"cutoff_len", "5"},
                                      {"max_steps", "-1"},
                                      {"max_steps", "-1"},
                                      {"learning_rate", "1e-5"},
                                      {"dataset", "a=b.jsonl"},
                                      {"output_dir", ""}});
  CHECK(source.problems.empty());
  CHECK(!read_arguments({"seed=1"}).file);
  CHECK(read_arguments({"runs/a=b/c.json"}).file == std::filesystem::path("runs/a=b/c.json"));
}

TEST_CASE("switches need no value and never swallow the config file") {
  const auto source = read_arguments({"--overwrite_output_dir", "a.json", "--no_gradient_checkpointing"});
  CHECK(source.file == std::filesystem::path("a.json"));
  CHECK(source.overrides == Overrides{{"overwrite_output_dir", "true"}, {"gradient_checkpointing", "false"}});
  CHECK(read_arguments({"--gradient-checkpointing", "full"}).overrides ==
        Overrides{{"gradient_checkpointing", "full"}});
  CHECK(read_arguments({"--overwrite_output_dir", "false", "--seed", "1"}).overrides ==
        Overrides{{"overwrite_output_dir", "false"}, {"seed", "1"}});
  CHECK(read_arguments({"--overwrite_output_dir", "seed=1"}).overrides ==
        Overrides{{"overwrite_output_dir", "true"}, {"seed", "1"}});
}

TEST_CASE("arguments that can't be understood are problems, not lost") {
  CHECK(read_arguments({"a.json", "b.json"}).problems ==
        Strings{"'b.json': a second config file after 'a.json'; expected key=value or --key value"});
  CHECK(read_arguments({"-v", "--", "", "--=3"}).problems.size() == 4);
  CHECK(read_arguments({"--seed"}).problems == Strings{"seed: a value is missing after --seed"});
  CHECK(read_arguments({"--seed", "--max_steps", "3"}).problems == Strings{"seed: a value is missing after --seed"});
  CHECK(read_arguments({"--no_seed"}).problems == Strings{"--no_seed: seed is no switch that can be turned off"});
  const auto misspelt = read_arguments({"--overwrite_output_dr", "a.json"});
  CHECK(misspelt.file == std::filesystem::path("a.json"));
  CHECK(misspelt.problems == Strings{"overwrite_output_dr: unknown key; did you mean overwrite_output_dir?"});
  CHECK(read_arguments({"--learning_rte", "1e-5"}).overrides == Overrides{{"learning_rte", "1e-5"}});
}

TEST_CASE("problems of the arguments come out together with those of the config") {
  auto source = read_arguments({"--seed", "--cutoff_len", "0"});
  const auto lines = test::problems_of([&] { parse_config(source, {}); });
  CHECK(lines == Strings{"the configuration has 2 problems:", "command line: seed: a value is missing after --seed",
                         "command line: cutoff_len: must be at least 2, got 0"});
}
