// What is wrong with the user's model, data, config or folders: exit code 2, a message that names the place, and
// nothing overwritten.
#include <functional>
#include <limits>

#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "support/catch.h"
#include "train/training_fixture.h"

using namespace skrull;
using test::Overrides;
namespace fs = std::filesystem;

namespace {

const std::string good_rows = "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5, 6]}\n";

/// Each of `parts` is in the one error of a run that ended with exit code 2.
void check_refused(const test::CommandResult& result, const std::vector<std::string>& parts) {
  INFO(result.errors);
  CHECK(result.exit_code == 2);
  CHECK(result.output.empty());
  for (const std::string& part : parts) CHECK(test::contains(result.errors, part));
  CHECK(result.errors.find("error: ") == result.errors.rfind("error: "));
}

struct Fixture : test::TrainingFixture {
  Fixture() { write("good.jsonl", good_rows); }
  std::string data() const { return "dataset=" + (*this / "good.jsonl").string(); }

  /// A run with the rows of `content`.
  test::CommandResult run_rows(const std::string& content, const Overrides& more = {}, int ranks = 0) {
    Overrides options = {"dataset=" + write("rows.jsonl", content).string(), "max_steps=1"};
    options.insert(options.end(), more.begin(), more.end());
    return run("out", options, ranks);
  }
  /// A run with this model folder.
  test::CommandResult run_model(const std::string& name, int ranks = 0) {
    return run("out", {data(), "max_steps=1", "model_name_or_path=" + (*this / name).string()}, ranks);
  }
  fs::path copy_model(const std::string& name) {
    test::write_edited_model(*this / name, test::tiny_model(), [](test::ModelTensors&) {});
    return *this / name;
  }
};

}  // namespace

TEST_CASE("weights that do not fit are refused by file and tensor", "[bad_input]") {
  Fixture fixture;
  const auto edited = [&](const std::string& name, const std::function<void(test::ModelTensors&)>& edit) {
    test::write_edited_model(fixture / name, test::tiny_model(), edit);
    return fixture.run_model(name);
  };
  fs::remove(fixture.copy_model("missing") / "model.safetensors");
  check_refused(fixture.run_model("missing"), {"missing: no model.safetensors"});

  const fs::path truncated = fixture.copy_model("truncated") / "model.safetensors";
  fs::resize_file(truncated, fs::file_size(truncated) - 1000);
  check_refused(fixture.run_model("truncated"), {"truncated/model.safetensors: tensor model.", "truncated"});

  check_refused(edited("shape",
                       [](auto& tensors) {
                         tensors.at("model.norm.weight").shape = {4, 8};
                       }),
                {"shape/model.safetensors: tensor model.norm.weight has shape [4, 8], config.json asks for [32]"});
  check_refused(edited("lacking", [](auto& tensors) { tensors.erase("model.layers.1.mlp.up_proj.weight"); }),
                {"lacking: missing from the weights: model.layers.1.mlp.up_proj.weight"});
  check_refused(edited("extra",
                       [](auto& tensors) {
                         tensors["model.extra"] = {{1}, {0.0F}};
                       }),
                {"extra/model.safetensors: tensors that the model of config.json does not have: model.extra"});
  check_refused(fixture.run_model("nowhere"), {"nowhere/config.json", "No such file"});
}

TEST_CASE("ranks fail together on a model that does not fit, with one message", "[bad_input]") {
  Fixture fixture;
  test::write_edited_model(fixture / "lacking", test::tiny_model(),
                           [](auto& tensors) { tensors.erase("model.norm.weight"); });
  const auto result = fixture.run_model("lacking", 2);
  check_refused(result, {"lacking: missing from the weights: model.norm.weight"});
  CHECK_FALSE(test::contains(result.errors, "MPI_ABORT"));
}

TEST_CASE("rows that are wrong are refused by file, line and place", "[bad_input]") {
  Fixture fixture;
  const std::string good = "{\"input_ids\": [1, 2]}\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {good + "{\"input_ids\": [1, 2\n", "rows.jsonl:2: column 20: invalid JSON"},
      {good + "{\"input_ids\": [1, 97]}\n", "rows.jsonl:2: input_ids[1] is 97, outside the model's vocabulary of 97"},
      {"{\"input_ids\": [-1, 2]}\n", "rows.jsonl:1: input_ids[0] is -1"},
      {"{\"input_ids\": []}\n", "rows.jsonl:1: \"input_ids\" is empty"},
      {"{\"input_ids\": [1, 2], \"labels\": [1]}\n", "rows.jsonl:1: \"labels\" has 1 entries and \"input_ids\" 2"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 500]}\n", "rows.jsonl:1: labels[1] is 500"},
      {"\n" + good + "{\"x\": \"\xFF\"}\n", "rows.jsonl:3: column 8: byte 0xFF is not valid UTF-8"},
      {good + "7\n", "rows.jsonl:2: the row is of type number"},
      {"{\"inputs\": [1]}\n", "rows.jsonl:1: the row holds \"inputs\", expected one of"},
      {"{\"messages\": []}\n", "rows.jsonl:1: the row needs a tokenizer"},
      {"", "holds no rows"},
      {"\n \n", "holds no rows"},
  };
  for (const auto& [content, message] : cases) check_refused(fixture.run_rows(content), {message});

  check_refused(fixture.run_rows(good + "{\"input_ids\": [1, 97]}\n", {}, 2), {"rows.jsonl:2: input_ids[1] is 97"});
}

TEST_CASE("when no row is left the reasons are told", "[bad_input]") {
  Fixture fixture;
  const std::string masked = "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n";
  check_refused(fixture.run_rows(masked + good_rows, {"cutoff_len=2"}),
                {"kept 0 of 3 rows", "2 dropped as longer than cutoff_len 2 (first: ", "rows.jsonl:2)",
                 "1 dropped without a token to train on (first: ", "rows.jsonl:1)"});
  // Truncation that leaves prompts alone drops the row; it is never trained on nothing.
  check_refused(fixture.run_rows("{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, 3]}\n",
                                 {"cutoff_len=2", "overlength=truncate"}),
                {"kept 0 of 1 rows", "without a token to train on"});
  check_refused(fixture.run_rows(good_rows, {"cutoff_len=2", "overlength=error"}), {"rows.jsonl:1", "cutoff_len 2"});
  check_refused(fixture.run_rows(masked, {}, 2), {"kept 0 of 1 rows"});
}

TEST_CASE("a byte order mark, CRLF and a line of 64 MB are fine; dropped and cut rows are counted", "[bad_input]") {
  Fixture fixture;
  const std::string rows = "\xEF\xBB\xBF{\"input_ids\": [1, 2]}\r\n\r\n{\"input_ids\": [3, 4, 5], \"note\": \"" +
                           std::string(std::size_t{64} << 20, 'a') + "\"}\r\n";
  const auto result = fixture.run_rows(rows);
  CHECK(test::result_of(result).at("tokens") == 5);
  CHECK(test::contains(result.errors, "the column \"note\" of 1 rows is not used"));
  CHECK(result.errors.size() < 10000);

  const auto dropped = fixture.run("dropped", {fixture.data(), "max_steps=1", "cutoff_len=3"});
  CHECK(test::contains(dropped.errors, "kept 2 of 2 rows"));
  const std::string mixed = good_rows + "{\"input_ids\": [1, 2, 3, 4]}\n";
  const auto cut = fixture.run("cut", {"dataset=" + fixture.write("mixed.jsonl", mixed).string(), "max_steps=1",
                                       "cutoff_len=3", "overlength=truncate"});
  CHECK(test::result_of(cut).at("tokens") == 9);
  CHECK(test::contains(cut.errors, "1 truncated"));
}

TEST_CASE("all problems of a config are told at once, with the nearest key", "[bad_input]") {
  Fixture fixture;
  const std::string broken = fixture.write("broken.json", "{\"learning_rate\": 1e-5,}").string();
  check_refused(test::run_skrull({"train", broken}), {"broken.json: line 1, column"});

  const std::string wrong =
      fixture.write("wrong.json", R"({"model_name_or_path": "m", "learning_rate": "fast", "datset": "d"})").string();
  for (const int ranks : {0, 2}) {
    const auto result = test::run_skrull({"train", wrong, "max_grad_norm=-1"}, ranks);
    check_refused(result, {"the configuration has ", "learning_rate", "datset: unknown key; did you mean dataset?",
                           "max_grad_norm", "output_dir"});
    CHECK_FALSE(test::contains(result.errors, "MPI_ABORT"));
  }
  check_refused(fixture.run("out", {fixture.data(), "device=cpu", "attention_engine=native"}, 2),
                {"attention_engine=native", "only GPUs"});
  check_refused(fixture.run("out", {fixture.data(), "device=cuda"}, 2), {"device=cpu"});
}

TEST_CASE("an output folder that is in use stays as it is", "[bad_input]") {
  Fixture fixture;
  fs::create_directories(fixture / "used");
  write_file_atomically(fixture / "used" / "notes.txt", "mine");
  for (const int ranks : {0, 2}) {
    check_refused(fixture.run("used", {fixture.data()}, ranks),
                  {"output_dir: ", "used is not empty (it holds notes.txt); nothing was overwritten"});
  }
  CHECK(std::distance(fs::directory_iterator(fixture / "used"), {}) == 1);

  // An earlier run's folder survives a start that fails, even with overwrite_output_dir.
  fixture.run_here("done", {fixture.data(), "max_steps=1"});
  const std::string model = read_file(fixture / "done" / "model.safetensors");
  check_refused(fixture.run("done", {"dataset=" + (fixture / "nothing.jsonl").string(), "overwrite_output_dir=true"}),
                {"nothing.jsonl", "No such file"});
  CHECK(read_file(fixture / "done" / "model.safetensors") == model);
  CHECK(fixture.metrics("done").steps.size() == 1);

  // To go on from a checkpoint in the same folder would remove it before the end.
  fixture.run_here("done", {fixture.data(), "max_steps=2", "save_steps=1", "overwrite_output_dir=true"});
  const fs::path checkpoint = fixture / "done" / "checkpoint-1";
  check_refused(
      fixture.run("done", {fixture.data(), "model_name_or_path=" + checkpoint.string(), "overwrite_output_dir=true"}),
      {"the model folder " + checkpoint.string() + " is part of an earlier run there"});
  CHECK(fs::exists(checkpoint / "model.safetensors"));
}

TEST_CASE("an output folder that can't be written is refused before anything else", "[bad_input]") {
  Fixture fixture;
  check_refused(fixture.run("good.jsonl/out", {fixture.data()}), {"output_dir: ", "good.jsonl/out can't be written"});
  check_refused(fixture.run("good.jsonl", {fixture.data()}), {"good.jsonl can't be written"});
  check_refused(fixture.run("out", {fixture.data(), "output_dir=/proc/skrull"}), {"/proc/skrull can't be written"});
  const fs::path model = fixture.copy_model("model");
  check_refused(fixture.run("model", {fixture.data(), "model_name_or_path=" + model.string()}), {"model"});
  CHECK(read_file(fixture / "good.jsonl") == good_rows);
}

TEST_CASE("bucket_tokens too small for a row names the row and what would do", "[bad_input]") {
  Fixture fixture;
  check_refused(fixture.run("out", {fixture.data(), "bucket_tokens=2"}), {"good.jsonl:1", "bucket_tokens", "3"});
}

TEST_CASE("overwriting never removes what the run reads, nor what no run made", "[bad_input]") {
  Fixture fixture;
  fixture.run_here("done", {fixture.data(), "max_steps=2", "save_steps=1"});
  const std::string output = (fixture / "done").string();
  const std::string source = read_file(fixture / "done" / "checkpoint-1" / "model.safetensors");
  fs::copy_file(fixture / "good.jsonl", fixture / "done" / "checkpoint-1" / "rows.jsonl");
  fs::create_directory_symlink(output, fixture / "link");
  const std::string from_checkpoint = "model_name_or_path=" + output + "/checkpoint-1";
  const std::string overwrite = "overwrite_output_dir=true";
  const std::string refusal = " is part of an earlier run there";
  check_refused(fixture.run("done", {fixture.data(), from_checkpoint, overwrite}),
                {"the model folder " + output + "/checkpoint-1" + refusal});
  check_refused(fixture.run("link", {fixture.data(), from_checkpoint, overwrite}), {"the model folder ", refusal});
  check_refused(fixture.run("done", {"dataset=" + output + "/checkpoint-1/rows.jsonl", overwrite}),
                {"the data file ", refusal});
  CHECK(read_file(fixture / "done" / "checkpoint-1" / "model.safetensors") == source);
  CHECK(fixture.metrics("done").steps.size() == 2);

  fs::create_directories(fixture / "done" / "checkpoint-best");
  write_file_atomically(fixture / "done" / "notes.txt", "mine");
  fixture.run_here("done", {fixture.data(), "max_steps=1", overwrite});
  CHECK(fs::exists(fixture / "done" / "checkpoint-best"));
  CHECK(fs::exists(fixture / "done" / "notes.txt"));
  CHECK_FALSE(fs::exists(fixture / "done" / "checkpoint-1"));
}

TEST_CASE("a model whose weights are not finite is not evaluated in silence", "[bad_input]") {
  Fixture fixture;
  test::write_edited_model(fixture / "nan", test::tiny_model(), [](auto& tensors) {
    tensors.at("model.norm.weight").values.front() = std::numeric_limits<float>::quiet_NaN();
  });
  const std::string model = (fixture / "nan").string();
  for (const int ranks : {0, 2}) {
    const auto result = fixture.evaluate({fixture.data(), "model_name_or_path=" + model}, ranks);
    INFO(result.errors);
    CHECK(result.exit_code == 1);
    CHECK(result.output.empty());
    CHECK(test::contains(result.errors, "the loss over 4 tokens is nan"));
    CHECK_FALSE(test::contains(result.errors, "MPI_ABORT"));
  }
  const auto generated = test::run_skrull({"generate", "--model", model, "--input-ids", "1 2"});
  CHECK(generated.exit_code == 1);
  CHECK(test::contains(generated.errors, "the logits behind token 2 are not finite"));
}

TEST_CASE("arguments of generate that are wrong are told in words", "[bad_input]") {
  const auto refusal = [](const std::string& ids, const std::string& count) {
    const auto result =
        test::run_skrull({"generate", "--model", test::tiny_model(), "--input-ids", ids, "--max-new-tokens", count});
    CHECK(result.exit_code == 2);
    return result.errors;
  };
  CHECK(test::contains(refusal("", "2"), "--input-ids: no token id in it"));
  CHECK(test::contains(refusal("1", "0"), "--max-new-tokens: expected a whole number of at least 1, got 0"));
  CHECK(test::contains(refusal("1", "x"), "--max-new-tokens"));
}
