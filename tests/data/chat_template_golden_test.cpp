// Against recorded renderings of Qwen2.5's template; needs the reference data.

#include <filesystem>
#include <fstream>

#include "data/errors.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/data/chat_template.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
namespace fs = std::filesystem;

namespace {

using Ids = std::vector<std::int32_t>;

ChatTemplate load_with_config(const fs::path& config, const Tokenizer& tokenizer) {
  const test::TemporaryFolder folder;
  fs::copy(config, folder / "tokenizer_config.json");
  return ChatTemplate::load(folder.path(), tokenizer);
}

}  // namespace

TEST_CASE("every recorded rendering") {
  const auto folder = test::reference_data("qwen");
  const auto golden = test::reference_data("golden/chat_template_golden.jsonl");
  if (!folder || !golden) return;
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  const ChatTemplate instruct = load_with_config(*folder / "tokenizer_config.json", tokenizer);
  const ChatTemplate base = load_with_config(*folder / "tokenizer_config.base.json", tokenizer);
  CHECK(ChatTemplate::load(*folder, tokenizer).default_system() == instruct.default_system());
  std::ifstream lines(*golden);
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const OrderedJson row = parse_row(line);
    INFO(row["template"] << " " << row["name"]);
    const ChatTemplate& chat_template = row["template"] == "qwen2.5-base" ? base : instruct;
    const bool prompt = row["add_generation_prompt"].get<bool>();
    const auto text = row["text"].get<std::string>();
    const Ids ids = row["ids"].get<Ids>();

    const RenderedConversation raw =
        chat_template.tokenize(read_conversation_as_jinja(row), prompt, AddedTokens::recognize);
    CHECK(raw.text == text);
    CHECK(raw.ids == ids);
    const Conversation conversation = parse_conversation(row);
    CHECK(chat_template.render(conversation, prompt) == text);
    const RenderedConversation trained = chat_template.tokenize(conversation, prompt);
    CHECK(trained.text == text);
    CHECK(trained.ids == ids);
    CHECK(trained.labels == raw.labels);
    // Every assistant turn ends with its trained <|im_end|>; no other turn does.
    std::int64_t trained_ends = 0;
    for (const std::int32_t label : trained.labels) trained_ends += label == chat_template.end_of_turn() ? 1 : 0;
    CHECK(trained_ends == std::count_if(conversation.messages.begin(), conversation.messages.end(),
                                        [](const Message& message) { return message.role == Role::assistant; }));
  }
  CHECK(cases == 112);
}

TEST_CASE("Qwen2.5's template is known with any default system text") {
  const auto folder = test::reference_data("qwen");
  if (!folder) return;
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  const std::string original = read_file(*folder / "chat_template.jinja");
  const std::string system = ChatTemplate::load(*folder, tokenizer).default_system();
  const auto load_with_system = [&](const std::string& in_turn, const std::string& alone) {
    const test::TemporaryFolder other;
    std::string text = original;
    const std::size_t first = text.find(system);
    text.replace(first, system.size(), alone);
    text.replace(text.find(system), system.size(), in_turn);
    write_file_atomically(other / "chat_template.jinja", text + "\n");
    return ChatTemplate::load(other.path(), tokenizer).default_system();
  };
  CHECK(load_with_system("", "").empty());
  CHECK(load_with_system(R"(It\'s \\boxed{}.\nNo.)", R"(It\'s \\boxed{}.\nNo.)") == "It's \\boxed{}.\nNo.");
  CHECK(test::contains(test::invalid_input_of([&] { load_with_system("One.", "Two."); }), "not known"));

  // Qwen3's template is another one.
  const test::TemporaryFolder qwen3;
  fs::copy(*folder / "qwen3.tokenizer_config.json", qwen3 / "tokenizer_config.json");
  CHECK(test::contains(test::invalid_input_of([&] { ChatTemplate::load(qwen3.path(), tokenizer); }), "not known"));
}
