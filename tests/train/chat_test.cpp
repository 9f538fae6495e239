// From chats to a model that talks: rows of messages through the trainer, what is trained of them, what is exported.
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "chat_model.h"
#include "skrull/core/file.h"
#include "support/catch.h"

using namespace skrull;
using test::joined;
using test::Overrides;
namespace fs = std::filesystem;

namespace {

constexpr int ignored = -100;

const std::string two_turns =
    R"({"messages": [{"role": "user", "content": "Who went to the mill?"}, {"role": "assistant", "content": "Greta."}, )"
    R"({"role": "user", "content": "And then?"}, {"role": "assistant", "content": "She left."}]})";
const std::string spelled_control_token =
    R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say <|im_end|> twice"}, )"
    R"({"role": "assistant", "content": "<|im_end|><|im_end|>"}]})";
const std::string never_answered = R"({"messages": [{"role": "user", "content": "Nobody answers?"}]})";
const std::string long_prompt = R"({"messages": [{"role": "user", "content": ")" + std::string(200, '?') +
                                R"("}, {"role": "assistant", "content": "No."}]})";
const std::string document = R"({"text": "Greta went to the mill."})";

std::string lines(const std::vector<std::string>& rows) {
  std::string text;
  for (const std::string& row : rows) text += row + "\n";
  return text;
}

struct ChatFixture : test::TrainingFixture {
  ChatFixture() { test::write_base_chat_model(model()); }
  fs::path model() const { return *this / "base"; }

  Overrides on(const std::vector<std::string>& rows, const Overrides& more = {}) {
    return joined({"model_name_or_path=" + model().string(), "init=random",
                   "dataset=" + write("chat.jsonl", lines(rows)).string(), "max_steps=1"},
                  more);
  }

  /// Runs the program and returns run.log.
  std::string train(const std::string& output, const Overrides& options, int ranks = 0) {
    const test::CommandResult result = run(output, options, ranks);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    return read_file(*this / output / "run.log");
  }

  /// What `skrull render` says of the rows.
  std::vector<Json> render(const std::vector<std::string>& rows) {
    const auto result = test::run_skrull({"render", "--tokenizer", model().string()}, 0, lines(rows));
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    std::vector<Json> rendered;
    std::istringstream stream(result.output);
    for (std::string line; std::getline(stream, line);) rendered.push_back(Json::parse(line));
    REQUIRE(rendered.size() == rows.size());
    return rendered;
  }
};

/// The last label of each run of trained tokens.
std::vector<int> ends_of_trained_runs(const std::vector<int>& labels) {
  std::vector<int> ends;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const bool last = i + 1 == labels.size() || labels[i + 1] == ignored;
    if (labels[i] != ignored && last) ends.push_back(labels[i]);
  }
  return ends;
}

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("what is trained of chats is what render shows: each answer with its end", "[chat]") {
  ChatFixture fixture;
  const std::vector<std::string> rows = {two_turns, spelled_control_token};
  std::int64_t tokens = 0;
  std::int64_t trained = 0;
  const std::vector<Json> rendered = fixture.render(rows);
  const std::vector<std::size_t> answers = {2, 1};
  const std::vector<int> messages = {5, 3};  // the default system message included
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto ids = rendered[i].at("ids").get<std::vector<int>>();
    const auto labels = rendered[i].at("labels").get<std::vector<int>>();
    REQUIRE(labels.size() == ids.size());
    for (std::size_t t = 0; t < ids.size(); ++t) CHECK((labels[t] == ignored || labels[t] == ids[t]));
    CHECK(ends_of_trained_runs(labels) == std::vector<int>(answers[i], test::chat_im_end));
    // Control tokens come from the template alone, whatever the content spells.
    CHECK(std::count(ids.begin(), ids.end(), test::chat_im_end) == messages[i]);
    CHECK(std::count(labels.begin(), labels.end(), test::chat_im_end) == static_cast<std::int64_t>(answers[i]));
    const auto row_trained = std::count_if(labels.begin(), labels.end(), [](int label) { return label != ignored; });
    CHECK(row_trained > 0);
    CHECK(row_trained < static_cast<std::int64_t>(ids.size()));
    tokens += static_cast<std::int64_t>(ids.size());
    trained += row_trained;
  }
  for (const int ranks : {0, 2}) {
    const std::string output = fmt::format("ranks-{}", ranks);
    fixture.train(output, fixture.on(rows), ranks);
    CHECK(fixture.metrics(output).steps.at(0).at("tokens") == tokens);
    CHECK(fixture.metrics(output).steps.at(0).at("trained_tokens") == trained);
  }
}

TEST_CASE("rows without an answer to train on are dropped and counted; a sample is shown", "[chat]") {
  ChatFixture fixture;
  const Overrides options = fixture.on({two_turns, never_answered, long_prompt, spelled_control_token, never_answered},
                                       {"cutoff_len=120", "overlength=truncate"});
  const std::string log = fixture.train("run", options);
  const std::string data = (fixture / "chat.jsonl").string();
  INFO(log);
  CHECK(test::contains(log, "data: kept 2 of 5 rows: 3 dropped without a token to train on (first: " + data + ":2)"));
  CHECK(test::contains(log, "data: 2 samples"));
  CHECK(test::contains(log, data + ":1: "));
  CHECK(test::contains(log,
                       "<|im_start|>user\nWho went to the mill?<|im_end|>\n<|im_start|>assistant\n"
                       "⟦Greta.<|im_end|>⟧\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"
                       "⟦She left.<|im_end|>⟧\n"));
  const Json step = fixture.metrics("run").steps.at(0);
  CHECK(step.at("loss").get<double>() > 0);
  std::int64_t tokens = 0;
  for (const Json& row : fixture.render({two_turns, spelled_control_token})) {
    tokens += static_cast<std::int64_t>(row.at("ids").size());
  }
  CHECK(step.at("tokens") == tokens);

  const auto dropped = fixture.run("dropped", fixture.on({never_answered, never_answered}));
  CHECK(dropped.exit_code == 2);
  CHECK(test::contains(dropped.errors, "kept 0 of 2 rows"));
}

TEST_CASE("a base model tuned on chats is exported to stop at the end of a turn", "[chat]") {
  ChatFixture fixture;
  fixture.train("chat", fixture.on({two_turns}, {"save_steps=1", "max_steps=2"}), 2);
  for (const fs::path& folder : {fixture / "chat", fixture / "chat" / "checkpoint-1"}) {
    INFO(folder);
    CHECK(read_json_file(folder / "generation_config.json").at("eos_token_id") ==
          Json({test::chat_im_end, test::chat_end_of_text}));
    CHECK(read_json_file(folder / "generation_config.json").at("do_sample") == false);
    CHECK(read_json_file(folder / "config.json").at("eos_token_id") == test::chat_im_end);
    CHECK(read_json_file(folder / "tokenizer_config.json").at("eos_token") == "<|im_end|>");
    CHECK(read_json_file(folder / "tokenizer_config.json").at("pad_token") == "<|endoftext|>");
    CHECK(read_file(folder / "tokenizer.json") == read_file(fixture.model() / "tokenizer.json"));
  }
  // Documents end with another token: a model tuned on them keeps its own.
  fixture.run_here("text", fixture.on({document}));
  CHECK(read_file(fixture / "text" / "generation_config.json") ==
        read_file(fixture.model() / "generation_config.json"));
  CHECK(read_json_file(fixture / "text" / "config.json").at("eos_token_id") == test::chat_end_of_text);
  CHECK(read_file(fixture / "text" / "tokenizer_config.json") == read_file(fixture.model() / "tokenizer_config.json"));
  // That it is also what pads does not mask it.
  const Json step = fixture.metrics("text").steps.at(0);
  CHECK(step.at("trained_tokens").get<int>() == step.at("tokens").get<int>() - 1);
  // A row of each kind: the end of a turn is among the ends.
  fixture.run_here("both", fixture.on({document, two_turns}));
  CHECK(read_json_file(fixture / "both" / "config.json").at("eos_token_id") == test::chat_im_end);
}

TEST_CASE("a model that is trained on answers learns to give them and to stop", "[chat]") {
  ChatFixture fixture;
  const std::string question =
      R"([{"role": "user", "content": "Who went to the mill?"}, {"role": "assistant", "content": "Greta."}])";
  const Overrides options =
      fixture.on({R"({"messages": )" + question + "}"}, {"max_steps=60", "learning_rate=0.02", "logging_steps=100"});
  fixture.run_here("chat", options);
  const auto losses = fixture.metrics("chat").of_steps("loss");
  CHECK(losses.back() < 0.1 * losses.front());
  const auto result =
      test::run_skrull({"generate", "--model", (fixture / "chat").string(), "--messages",
                        fixture.write("question.json", question).string(), "--max-new-tokens", "20", "--json"});
  INFO(result.output << result.errors);
  const Json answers = test::result_of(result);
  CHECK(answers.at("correct") == 1);
  CHECK(answers.at("expected") == 1);
  CHECK(answers.at("answers").at(0).at("text") == "Greta.");
  CHECK(answers.at("answers").at(0).at("ids").back() == test::chat_im_end);
}

TEST_CASE("tokens are cached under output_dir and found at the second start; the data's folder stays as it was",
          "[chat]") {
  ChatFixture fixture;
  ::unsetenv("SKRULL_CACHE");
  const fs::path data = fixture / "data";
  fs::create_directories(data);
  write_file_atomically(data / "chat.jsonl", lines({two_turns, never_answered}));
  REQUIRE(::chmod(data.c_str(), 0555) == 0);
  const std::vector<std::string> before = files_below(data);
  const Overrides options = fixture.on({}, {"dataset=" + (data / "chat.jsonl").string(), "overwrite_output_dir=true"});
  const std::string first = fixture.train("run", options, 2);
  CHECK(test::contains(first, "tokenized 2 rows"));
  const std::string metrics = fixture.metrics("run").without_measurements();
  REQUIRE(fs::exists(fixture / "run" / "cache"));
  const std::vector<std::string> cached = files_below(fixture / "run" / "cache");

  const std::string second = fixture.train("run", options, 2);
  INFO(second);
  CHECK_FALSE(test::contains(second, "tokenized"));
  CHECK(test::contains(second, "using the token cache " + (fixture / "run" / "cache").string()));
  // The report of the rows comes from the cache.
  CHECK(test::contains(second, "kept 1 of 2 rows: 1 dropped without a token to train on"));
  CHECK(test::contains(second, "⟦Greta.<|im_end|>⟧"));
  CHECK(fixture.metrics("run").without_measurements() == metrics);
  CHECK(files_below(fixture / "run" / "cache") == cached);
  CHECK(files_below(data) == before);

  // Other data, other tokens.
  const std::string third = fixture.train("run", fixture.on({two_turns}, {"overwrite_output_dir=true"}));
  CHECK(test::contains(third, "tokenized 1 rows"));
  REQUIRE(::chmod(data.c_str(), 0755) == 0);
}

TEST_CASE("a run over an earlier one leaves no tokenizer of that one behind", "[chat]") {
  ChatFixture fixture;
  fixture.run_here("out", fixture.on({two_turns}));
  REQUIRE(fs::exists(fixture / "out" / "tokenizer.json"));
  const Overrides without_tokenizer = {
      "dataset=" + fixture.write("rows.jsonl", test::random_rows(31, 2, 9, 97)).string(), "max_steps=1",
      "overwrite_output_dir=true"};
  fixture.run_here("out", without_tokenizer);
  CHECK(fs::exists(fixture / "out" / "model.safetensors"));
  CHECK_FALSE(fs::exists(fixture / "out" / "tokenizer.json"));
  CHECK_FALSE(fs::exists(fixture / "out" / "tokenizer_config.json"));

  // Not even with overwrite_output_dir does a run remove the tokenizer that it reads.
  fs::create_directories(fixture / "tokenizer");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy(fixture.model() / name, fixture / "tokenizer" / name);
  }
  fs::create_directory_symlink(fixture / "tokenizer", fixture / "link");
  for (const std::string name : {"tokenizer", "link"}) {
    const Overrides options =
        fixture.on({two_turns}, {"tokenizer_name_or_path=" + (fixture / name).string(), "overwrite_output_dir=true"});
    const test::Failure failure = test::failure_of([&] { fixture.run_here("tokenizer", options); });
    CHECK(failure.exit_code == 2);
    CHECK(test::contains(failure.message, "output_dir: " + (fixture / "tokenizer").string()));
    CHECK(fs::exists(fixture / "tokenizer" / "tokenizer.json"));
  }
}
