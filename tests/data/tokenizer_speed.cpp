// Tokens and bytes per second of the tokenizer on one thread, as JSON: tokenizer_speed FOLDER REPEATS FILE...
// A file "*.jsonl" gives many short texts (each message's content), any other file one long text. Not a test:
// scripts/compare_tokenizer_speed.py runs it beside the reference implementation.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/data/tokenizer.h"

using namespace skrull;

namespace {

/// Processor time of this program, which other load on the machine changes least.
double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<std::string> read_texts(const std::filesystem::path& file) {
  if (file.extension() != ".jsonl") return {read_file(file)};
  std::vector<std::string> texts;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line);
    if (row.contains("text")) texts.push_back(row["text"].get<std::string>());
    if (!row.contains("messages")) continue;
    for (const Json& message : row["messages"]) {
      if (message["content"].is_string()) texts.push_back(message["content"].get<std::string>());
    }
  }
  return texts;
}

Json measure(const Tokenizer& tokenizer, const std::filesystem::path& file, int repeats) {
  const std::vector<std::string> texts = read_texts(file);
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  std::vector<double> seconds;
  std::size_t tokens = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    tokens = 0;
    const double start = now();
    for (const std::string& text : texts) tokens += tokenizer.encode(text, AddedTokens::recognize).size();
    seconds.push_back(now() - start);
  }
  const double first = seconds.front();
  return {{"file", file.string()},  {"texts", texts.size()},
          {"bytes", bytes},         {"tokens", tokens},
          {"first_seconds", first}, {"best_seconds", *std::min_element(seconds.begin(), seconds.end())}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s TOKENIZER_FOLDER REPEATS FILE...\n", argv[0]);
    return 2;
  }
  try {
    const double start = now();
    const Tokenizer tokenizer = Tokenizer::load(argv[1]);
    Json result = {{"load_seconds", now() - start}, {"files", Json::array()}};
    for (int i = 3; i < argc; ++i)
      result["files"].push_back(measure(tokenizer, argv[i], std::max(1, std::atoi(argv[2]))));
    std::printf("%s\n", result.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
