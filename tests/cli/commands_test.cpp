// The commands beside train, through standard input and output of the program.
#include <cmath>
#include <fstream>
#include <sstream>

#include "data/tiny_tokenizer.h"
#include "skrull/core/file.h"
#include "support/catch.h"
#include "train/chat_model.h"
#include "train/edited_models.h"

using namespace skrull;
using test::CommandResult;
using test::run_skrull;
namespace fs = std::filesystem;

namespace {

using Ids = std::vector<std::int32_t>;

std::vector<Json> output_rows(const CommandResult& result) {
  INFO(result.errors);
  CHECK(result.exit_code == 0);
  std::vector<Json> rows;
  std::istringstream stream(result.output);
  for (std::string line; std::getline(stream, line);) rows.push_back(Json::parse(line));
  return rows;
}

void check_refused(const CommandResult& result, const std::vector<std::string>& parts) {
  INFO(result.errors);
  CHECK(result.exit_code == 2);
  for (const std::string& part : parts) CHECK(test::contains(result.errors, part));
  CHECK(result.errors.starts_with("error: "));
}

struct TinyTokenizer : test::TemporaryFolder {
  TinyTokenizer() { test::write_tiny_tokenizer(path()); }
  CommandResult tokenize(const std::string& input, const std::vector<std::string>& more = {}) const {
    return run("tokenize", input, more);
  }
  CommandResult render(const std::string& input, const std::vector<std::string>& more = {}) const {
    return run("render", input, more);
  }

 private:
  CommandResult run(const std::string& command, const std::string& input, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {command, "--tokenizer", path().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_skrull(arguments, 0, input);
  }
};

/// A model without a tokenizer in which token c, below the hidden size, is followed by c - 1; 2 ends a text.
void write_counting_model(const fs::path& folder) {
  test::write_model_of_known_losses(folder, 0, {});
  test::write_edited_model(folder / "counting", folder, [](test::ModelTensors& tensors) {
    for (std::int32_t c = 1; c < test::editable_hidden; ++c) {
      test::element(tensors.at("lm_head.weight"), c - 1, c) = 1.0F;
    }
  });
  fs::copy(fs::path(test::tiny_model(test::editable_model)) / "generation_config.json", folder / "counting");
}

struct CountingModel : test::TrainingFixture {
  CountingModel() { write_counting_model(*this / "model"); }
  CommandResult generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate", "--model", (*this / "model" / "counting").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_skrull(arguments);
  }
  Json generate_json(std::vector<std::string> more) const {
    more.emplace_back("--json");
    return test::result_of(generate(more));
  }
};

const std::string chat =
    R"({"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello<|im_end|>"}]})";

struct ReferenceRow {
  std::string line;
  Json values;
};

/// The rows of a reference file that `keep` wants.
template <class Keep>
std::vector<ReferenceRow> reference_rows(const fs::path& file, Keep&& keep) {
  std::vector<ReferenceRow> rows;
  std::ifstream stream(file);
  std::size_t index = 0;
  for (std::string line; std::getline(stream, line); ++index) {
    Json values = Json::parse(line);
    if (keep(index, values)) rows.push_back({line, std::move(values)});
  }
  return rows;
}

}  // namespace

TEST_CASE("tokenize: a line of ids for every line of text", "[commands]") {
  const TinyTokenizer tokenizer;
  const std::string input = "{\"text\": \"hello\"}\r\n\n{\"text\": \"\"}\n{\"text\": \"or<|im_end|>\", \"more\": 1}";
  const std::vector<Json> rows = output_rows(tokenizer.tokenize(input));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0] == Json{{"ids", {259}}});
  CHECK(rows[1] == Json{{"ids", Json::array()}});
  CHECK(rows[2] == Json{{"ids", {262, test::tiny_im_end}}});

  const std::vector<Json> plain = output_rows(tokenizer.tokenize(input, {"--plain"}));
  REQUIRE(plain.size() == 3);
  CHECK(plain[0] == rows[0]);
  CHECK(plain[2].at("ids") == Json(Ids{262, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'}));
  CHECK(output_rows(tokenizer.tokenize("")).empty());
}

TEST_CASE("tokenize: a bad line ends with its number, after the lines before it", "[commands]") {
  const TinyTokenizer tokenizer;
  const auto result = tokenizer.tokenize("{\"text\": \"hello\"}\n\n{\"txt\": \"a\"}\n{\"text\": \"hello\"}\n");
  check_refused(result, {"<stdin>:3: text: expected {\"text\": \"...\"}"});
  CHECK(result.output == "{\"ids\": [259]}\n");
  check_refused(tokenizer.tokenize("{\"text\": \"a\"\n"), {"<stdin>:1: not valid JSON at column"});
  check_refused(tokenizer.tokenize("{\"text\": \"\xC3\"}\n", {"--plain"}), {"<stdin>:1: "});
  check_refused(run_skrull({"tokenize"}), {"--tokenizer"});
  check_refused(run_skrull({"tokenize", "--tokenizer", (tokenizer / "none").string()}), {"none"});
  check_refused(tokenizer.tokenize("", {"--plane"}), {"--plane"});
}

TEST_CASE("render: text, ids and labels of a conversation", "[commands]") {
  const TinyTokenizer tokenizer;
  const auto rows = output_rows(tokenizer.render(chat + "\n" + chat + "\n"));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == rows[1]);
  REQUIRE(rows[0].size() == 3);
  CHECK(rows[0].at("text") ==
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\nhello<|im_end|><|im_end|>\n");
  const auto ids = rows[0].at("ids").get<Ids>();
  const auto labels = rows[0].at("labels").get<Ids>();
  REQUIRE(labels.size() == ids.size());
  // The answer with the spelled token as text, then the end of the turn, then the line break that is not trained.
  const Ids answer = {259, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', test::tiny_im_end};
  Ids expected(ids.size() - answer.size() - 1, -100);
  expected.insert(expected.end(), answer.begin(), answer.end());
  expected.push_back(-100);
  CHECK(labels == expected);
  CHECK(ids.back() == '\n');
  CHECK(Ids(ids.end() - 1 - static_cast<std::ptrdiff_t>(answer.size()), ids.end() - 1) == answer);

  const auto prompted = output_rows(tokenizer.render(chat, {"--add-generation-prompt"}));
  CHECK(prompted.at(0).at("text") == rows[0].at("text").get<std::string>() + "<|im_start|>assistant\n");
  CHECK(prompted.at(0).at("labels").back() == -100);
  // The template alone: one text, in which what spells a control token is one.
  const auto raw = output_rows(tokenizer.render(chat, {"--raw"}));
  CHECK(raw.at(0).at("text") == rows[0].at("text"));
  CHECK(raw.at(0).at("ids").size() == ids.size() - 9);
}

TEST_CASE("render: what training refuses is refused by line and field, --raw takes it as it is", "[commands]") {
  const TinyTokenizer tokenizer;
  const std::string odd = R"({"messages": [{"role": "critic", "content": "hm"}]})";
  const auto result = tokenizer.render(chat + "\n" + odd + "\n");
  check_refused(result, {"<stdin>:2: messages[0].role: \"critic\" is not a role", "user"});
  CHECK(output_rows({0, result.output, ""}).size() == 1);
  check_refused(tokenizer.render("{\"messages\": []}\n"), {"<stdin>:1: messages: empty"});
  check_refused(tokenizer.render("{}\n"), {"<stdin>:1: "});
  CHECK(output_rows(tokenizer.render(odd, {"--raw"})).at(0).at("text") ==
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n");

  // Arguments of a tool call may be a JSON string; null is no content.
  const std::string call =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": )"
      R"([{"type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}]}]})";
  const auto with_arguments = [&](const std::string& arguments) {
    std::string row = call;
    row.replace(row.find("ARGUMENTS"), 9, arguments);
    return output_rows(tokenizer.render(row)).at(0);
  };
  const Json parsed = with_arguments(R"("{\"x\": 1}")");
  CHECK(parsed == with_arguments(R"({"x": 1})"));
  CHECK(test::contains(parsed.at("text").get<std::string>(),
                       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>\n"));
}

TEST_CASE("tokenize and render give the recorded ids and texts", "[commands]") {
  const auto folder = test::reference_data("qwen");
  const auto tokens = test::reference_data("golden/tokenizer_golden.jsonl");
  const auto chats = test::reference_data("golden/chat_template_golden.jsonl");
  if (!folder || !tokens || !chats) return;
  // The rows go in as they stand in the file: numbers keep their form, objects their order.
  const auto run = [&](const std::vector<ReferenceRow>& rows, std::vector<std::string> arguments) {
    std::string input;
    for (const ReferenceRow& row : rows) input += row.line + "\n";
    arguments.insert(arguments.begin() + 1, {"--tokenizer", folder->string()});
    std::vector<Json> results = output_rows(run_skrull(arguments, 0, input));
    REQUIRE(results.size() == rows.size());
    return results;
  };
  const auto texts = reference_rows(*tokens, [](std::size_t index, const Json&) { return index % 16 == 0; });
  REQUIRE(texts.size() == 51);
  const auto recognized = run(texts, {"tokenize"});
  const auto plain = run(texts, {"tokenize", "--plain"});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Json& expected = texts[i].values;
    INFO("case " << expected.at("id"));
    CHECK(recognized[i].at("ids") == expected.at("ids"));
    CHECK(plain[i].at("ids") == expected.value("ids_plain", expected.at("ids")));
  }

  for (const bool prompt : {false, true}) {
    const auto cases = reference_rows(*chats, [&](std::size_t, const Json& row) {
      return row.at("template") == "qwen2.5-instruct" && row.at("add_generation_prompt") == prompt;
    });
    REQUIRE(cases.size() == 28);
    std::vector<std::string> arguments = {"render"};
    if (prompt) arguments.emplace_back("--add-generation-prompt");
    for (const bool raw : {false, true}) {
      if (raw) arguments.emplace_back("--raw");
      const auto rendered = run(cases, arguments);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        INFO(cases[i].values.at("name") << (raw ? " --raw" : ""));
        CHECK(rendered[i].at("text") == cases[i].values.at("text"));
        CHECK(rendered[i].at("ids") == cases[i].values.at("ids"));
      }
    }
  }
}

TEST_CASE("generate: ids in, ids out, until an end or the limit", "[commands]") {
  const CountingModel model;
  const auto text = model.generate({"--input-ids", " 9 6", "--max-new-tokens", "10"});
  INFO(text.errors);
  CHECK(text.exit_code == 0);
  CHECK(text.output == "5 4 3 2\n");  // 2 ends the text
  CHECK(model.generate_json({"--input-ids", "9 6", "--max-new-tokens", "10"}) ==
        Json({{"ids", {5, 4, 3, 2}}, {"text", ""}}));
  CHECK(model.generate_json({"--input-ids", "47", "--max-new-tokens", "3"}).at("ids") == Json({46, 45, 44}));
  CHECK(model.generate_json({"--input-ids", "47", "--max-new-tokens", "3", "--compute-dtype", "bfloat16"}).at("ids") ==
        Json({46, 45, 44}));
}

TEST_CASE("generate: a seed gives the same draws again, another one others; a small top-p is greedy", "[commands]") {
  const CountingModel model;
  const auto draw = [&](const std::string& seed, const std::vector<std::string>& more = {}) {
    return model.generate_json(
        test::joined({"--input-ids", "40", "--max-new-tokens", "24", "--temperature", "5", "--seed", seed}, more));
  };
  const Json first = draw("1");
  CHECK(draw("1") == first);
  CHECK(draw("2") != first);
  CHECK(draw("1", {"--top-p", "0.0001"}).at("ids") == draw("2", {"--top-p", "0.0001"}).at("ids"));
  CHECK(draw("1", {"--top-p", "0.0001"}).at("ids").at(0) == 39);
}

TEST_CASE("generate: prompts that can't be continued are refused with the reason", "[commands]") {
  const CountingModel model;
  check_refused(model.generate({"--input-ids", "1 x2"}), {"--input-ids: \"x2\" is not a token id"});
  check_refused(model.generate({"--input-ids", "1 -2"}), {"\"-2\" is not a token id"});
  check_refused(model.generate({"--input-ids", "1 99999999999"}), {"\"99999999999\" is not a token id"});
  check_refused(model.generate({"--input-ids", " "}), {"no token id"});
  check_refused(model.generate({"--input-ids", "1 131"}),
                {"token 2 of the prompt is 131, outside the model's vocabulary of 131 tokens"});
  check_refused(model.generate({"--prompt", "hello"}), {"counting: has no tokenizer", "--input-ids"});
  check_refused(model.generate({}), {"generate --help"});
  check_refused(model.generate({"--input-ids", "1", "--prompt", "hello"}), {"generate --help"});
  check_refused(model.generate({"--input-ids", "1", "--top-p", "0"}), {"top_p 0"});
  check_refused(model.generate({"--input-ids", "1", "--max-new-tokens", "0"}), {"--max-new-tokens"});
  check_refused(run_skrull({"generate", "--model", (model / "none").string(), "--input-ids", "1"}), {"none"});
}

TEST_CASE("generate: text and conversations, by file and line", "[commands]") {
  test::TrainingFixture fixture;
  test::write_base_chat_model(fixture / "base");
  fixture.run_here("model", {"model_name_or_path=" + (fixture / "base").string(), "init=random", "max_steps=1",
                             "dataset=" + fixture.write("chat.jsonl", chat + "\n").string()});
  const auto generate = [&](const std::vector<std::string>& more) {
    return run_skrull(
        test::joined({"generate", "--model", (fixture / "model").string(), "--max-new-tokens", "4", "--json"}, more));
  };
  const auto tokenize = [&](const std::string& text) {
    return output_rows(run_skrull({"tokenize", "--tokenizer", (fixture / "model").string()}, 0,
                                  Json{{"text", text}}.dump() + "\n"))
        .at(0)
        .at("ids")
        .get<Ids>();
  };
  // A text is the ids it is made of.
  const std::string prompt = "<|im_start|>user\nWho?<|im_end|>\n";
  const Ids prompt_ids = tokenize(prompt);
  CHECK(prompt_ids.front() == test::chat_im_start);
  const Json by_text = test::result_of(generate({"--prompt", prompt}));
  CHECK(by_text == test::result_of(generate({"--input-ids", fmt::format("{}", fmt::join(prompt_ids, " "))})));
  CHECK(by_text.at("ids").size() <= 4);

  // A conversation is its rendering with the header of an answer.
  const std::string question = R"({"role": "user", "content": "Who?"})";
  const std::string asked = R"({"messages": [)" + question + "]}";
  const auto rendered = output_rows(
      run_skrull({"render", "--tokenizer", (fixture / "model").string(), "--add-generation-prompt"}, 0, asked + "\n"));
  const Json answer =
      test::result_of(generate({"--messages", fixture.write("one.json", "[" + question + "]").string()}));
  CHECK(answer == test::result_of(generate(
                      {"--input-ids", fmt::format("{}", fmt::join(rendered.at(0).at("ids").get<Ids>(), " "))})));
  const std::string expecting = R"({"messages": [)" + question + R"(, {"role": "assistant", "content": "not this"}]})";
  const Json several =
      test::result_of(generate({"--messages", fixture.write("two.jsonl", asked + "\n" + expecting + "\n").string()}));
  CHECK(several.at("expected") == 1);
  CHECK(several.at("correct") == 0);
  REQUIRE(several.at("answers").size() == 2);
  for (const Json& each : several.at("answers")) {
    CHECK(each.at("ids") == answer.at("ids"));
    CHECK(each.at("text") == answer.at("text"));
    CHECK(each.at("prompt_tokens") == rendered.at(0).at("ids").size());
  }

  check_refused(generate({"--messages", fixture.write("bad.jsonl", asked + "\n{\"messages\": 5}\n").string()}),
                {"bad.jsonl:2: messages: expected a list of messages"});
  check_refused(generate({"--messages", fixture.write("empty.jsonl", std::string("\n")).string()}), {"empty.jsonl"});
  check_refused(generate({"--messages", (fixture / "none.json").string()}), {"none.json", "No such file"});
}

TEST_CASE("generate continues a trained model's text as recorded", "[commands]") {
  const auto folder = test::reference_data("tiny/stories260k-qwen2");
  if (!folder) return;
  const auto expected = read_json_file(*folder / "golden.json").at("greedy_from_bos").get<Ids>();
  const Ids prompt(expected.begin(), expected.begin() + 20);
  const auto result = run_skrull({"generate", "--model", folder->string(), "--input-ids",
                                  fmt::format("{}", fmt::join(prompt, " ")), "--max-new-tokens", "60", "--json"});
  CHECK(test::result_of(result).at("ids") == Json(Ids(expected.begin() + 20, expected.begin() + 80)));
}

TEST_CASE("eval: loss, perplexity and tokens as one JSON object", "[commands]") {
  test::TrainingFixture fixture;
  test::write_model_of_known_losses(fixture / "known", 0, {{1, 1.0}, {3, 3.0}});
  // Two tokens of 1.0 and one of 3.0.
  const std::string rows = "{\"input_ids\": [1, 0, 1, 0], \"labels\": [-100, 0, -100, 0]}\n{\"input_ids\": [3, 0]}\n";
  const std::string data = "dataset=" + fixture.write("rows.jsonl", rows).string();
  const std::string model = "model_name_or_path=" + (fixture / "known").string();
  for (const int ranks : {0, 2}) {
    const auto result = run_skrull({"eval", model, data}, ranks);
    INFO(result.errors);
    const Json values = test::result_of(result);
    CHECK(values.size() == 3);
    CHECK(values.at("tokens") == 3);
    CHECK(values.at("loss").get<double>() == Approx(5.0 / 3).epsilon(1e-5));
    CHECK(values.at("perplexity").get<double>() == Approx(std::exp(5.0 / 3)).epsilon(1e-5));
    CHECK(test::contains(result.errors, "kept 2 of 2 rows"));
  }
  const std::string config =
      fixture.write("eval.json", Json{{"model_name_or_path", (fixture / "known").string()}}.dump()).string();
  CHECK(test::result_of(run_skrull({"eval", config, data, "--cutoff_len", "2"})).at("tokens") == 1);

  const std::string bad = "eval_dataset=" + fixture.write("bad.jsonl", rows + "{\"input_ids\": [1, 131]}\n").string();
  for (const int ranks : {0, 2}) {
    check_refused(run_skrull({"eval", model, bad}, ranks), {"bad.jsonl:3: input_ids[1] is 131"});
  }
  check_refused(run_skrull({"eval", data}), {"model_name_or_path"});
  check_refused(run_skrull({"eval", model}), {"nothing to evaluate on"});
}

TEST_CASE("a profile is measured into a file that plans are made by, and never over another", "[commands][profile]") {
  test::TrainingFixture fixture;
  const std::string file = (fixture / "mine.profile.json").string();
  const std::vector<std::string> command = {"profile",   "--model", test::tiny_model(), "--seconds", "0.2",
                                            "--threads", "1",       "--output",         file};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> arguments = command;
    arguments.push_back(more);
    return arguments;
  };
  const Json json = test::result_of(run_skrull(with("--json")));
  CHECK(json.at("profile_file") == file);
  CHECK(json.at("profile").at("name") == "mine");
  CHECK(json.at("profile").at("format") == "skrull-profile/1");
  CHECK(json.at("profile") == Json::parse(read_file(file)));

  const std::string before = read_file(file);
  check_refused(run_skrull(command), {"mine.profile.json exists", "--overwrite"});
  CHECK(read_file(file) == before);
  CHECK(run_skrull(with("--overwrite")).exit_code == 0);
  CHECK(read_file(file) != before);
  check_refused(run_skrull({"profile", "--output", (fixture / "nowhere" / "p.json").string()}), {"there is no folder"});

  const Json step = test::result_of(run_skrull({"bench", "step", "--model", test::tiny_model(), "--tokens", "64",
                                                "--threads", "1", "--profile", file, "--json"}));
  CHECK(step.at("profile") == "mine");
  CHECK(step.at("predicted_step_seconds").get<double>() > 0.0);
  CHECK(step.at("predicted_over_measured").get<double>() ==
        Approx(step.at("predicted_step_seconds").get<double>() / step.at("step_seconds").get<double>()));
  check_refused(run_skrull({"bench", "step", "--model", test::tiny_model(), "--profile", "cqu"}),
                {"did you mean cpu?"});
}

TEST_CASE("every command explains itself, unknown ones are answered with the nearest", "[commands]") {
  for (const char* command : {"train", "eval", "generate", "profile", "tokenize", "render", "config", "bench"}) {
    INFO(command);
    const auto result = run_skrull({command, "--help"});
    CHECK(result.exit_code == 0);
    CHECK(result.errors.empty());
    CHECK(result.output.size() > 100);
    CHECK(test::contains(run_skrull({"--help"}).output, fmt::format("\n  {} ", command)));
  }
  check_refused(run_skrull({"tokenise"}), {"unknown command \"tokenise\"; did you mean \"tokenize\"?"});
  CHECK(run_skrull({}).exit_code == 2);
  CHECK(test::contains(run_skrull({"--version"}).output, "skrull "));
}

TEST_CASE("doctor says what the machine has, and tests the device") {
  const std::vector<Json> rows = output_rows(run_skrull({"doctor", "--json", "--self-test", "--device", "cpu"}));
  REQUIRE(rows.size() == 1);
  std::vector<std::string> names;
  for (const Json& part : rows[0].at("parts")) {
    names.push_back(part.at("part"));
    const bool ok = part.at("state") == "ok";
    CHECK(ok == part.at("advice").get<std::string>().empty());
    CHECK_FALSE(part.at("found").get<std::string>().empty());
  }
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 5) ==
        std::vector<std::string>{"program", "processor", "memory", "MPI", "CUDA"});
  CHECK(rows[0].at("self_test").at("checks") > 500);
  CHECK(rows[0].at("self_test").at("failures").empty());
  check_refused(run_skrull({"doctor", "--device", "tpu"}), {"--device"});
}
