// Against recorded ids of the reference implementation; needs the reference data.

#include <filesystem>
#include <fstream>
#include <iterator>

#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/data/tokenizer.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
namespace fs = std::filesystem;

namespace {

using Ids = std::vector<std::int32_t>;

/// The folder without tokenizer.json.
void make_vocab_and_merges_folder(const fs::path& from, const fs::path& to) {
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) fs::copy(from / name, to / name);
}

void check_golden_cases(const Tokenizer& tokenizer, const fs::path& golden) {
  std::ifstream lines(golden);
  std::int64_t cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const Json golden_case = Json::parse(line);
    INFO("case " << golden_case["id"] << " of " << golden_case["cat"]);
    const auto text = golden_case["text"].get<std::string>();
    const auto ids = golden_case["ids"].get<Ids>();
    CHECK(tokenizer.encode(text, AddedTokens::recognize) == ids);
    CHECK(tokenizer.encode(text, AddedTokens::plain) == golden_case.value("ids_plain", ids));
    CHECK(tokenizer.decode(ids) == golden_case.value("decoded", text));
  }
  CHECK(cases == 816);
}

std::string sha256(const std::string& bytes) {
  const test::CommandResult result = test::run_command({"sha256sum"}, bytes);
  REQUIRE(result.exit_code == 0);
  return result.output.substr(0, 64);
}

}  // namespace

TEST_CASE("every recorded case, from tokenizer.json and from vocab.json with merges.txt") {
  const auto folder = test::reference_data("qwen");
  const auto golden = test::reference_data("golden/tokenizer_golden.jsonl");
  if (!folder || !golden) return;
  check_golden_cases(Tokenizer::load(*folder), *golden);

  const test::TemporaryFolder other;
  make_vocab_and_merges_folder(*folder, other.path());
  check_golden_cases(Tokenizer::load(other.path()), *golden);

  const test::TemporaryFolder with_header;
  make_vocab_and_merges_folder(*folder, with_header.path());
  fs::remove(with_header / "merges.txt");
  write_file_atomically(with_header / "merges.txt", "#version: 0.2\n" + read_file(*folder / "merges.txt"));
  check_golden_cases(Tokenizer::load(with_header.path()), *golden);
}

TEST_CASE("Qwen3's files, with merges as pairs, give the ids of Qwen2.5 for text without added tokens") {
  const auto folder = test::reference_data("qwen");
  const auto golden = test::reference_data("golden/tokenizer_golden.jsonl");
  if (!folder || !golden) return;
  const test::TemporaryFolder other;
  fs::copy(*folder / "qwen3.tokenizer.json", other / "tokenizer.json");
  fs::copy(*folder / "qwen3.tokenizer_config.json", other / "tokenizer_config.json");
  const Tokenizer qwen3 = Tokenizer::load(other.path());
  CHECK(qwen3.added_tokens().size() == 26);
  CHECK(qwen3.find_token("</think>") == 151668);
  CHECK(qwen3.vocab_size() == 151669);
  std::ifstream lines(*golden);
  for (std::string line; std::getline(lines, line);) {
    const Json golden_case = Json::parse(line);
    INFO("case " << golden_case["id"]);
    const auto text = golden_case["text"].get<std::string>();
    CHECK(qwen3.encode(text, AddedTokens::plain) == golden_case.value("ids_plain", golden_case["ids"].get<Ids>()));
  }
}

TEST_CASE("whole files") {
  const auto folder = test::reference_data("qwen");
  const auto golden = test::reference_data("golden/whole_file_tokens.json");
  if (!folder || !golden) return;
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  for (const Json& whole_file : read_json_file(*golden)) {
    const auto name = whole_file["file"].get<std::string>();
    INFO(name);
    const auto file = test::reference_data(name);
    if (!file) continue;
    const Ids ids = tokenizer.encode(read_file(*file), AddedTokens::recognize);
    CHECK(ids.size() == whole_file["n_tokens"].get<std::size_t>());
    const std::string bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0]));
    CHECK(sha256(bytes) == whole_file["ids_int32le_sha256"].get<std::string>());
  }
}

TEST_CASE("the ids of the tokens that everybody needs") {
  const auto folder = test::reference_data("qwen");
  if (!folder) return;
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  CHECK(tokenizer.find_token("<|endoftext|>") == 151643);
  CHECK(tokenizer.find_token("<|im_start|>") == 151644);
  CHECK(tokenizer.find_token("<|im_end|>") == 151645);
  CHECK(tokenizer.eos_id() == 151645);
  CHECK(tokenizer.pad_id() == 151643);
  CHECK(tokenizer.vocab_size() == 151665);
  CHECK(tokenizer.added_tokens().size() == 22);
  CHECK(tokenizer.decode(Ids{151644, 151700, 198}) == "<|im_start|>\n");
}
